"""The status page: what `status` and the dashboard show, as one HTML document.

Given a `Picture`, gives bytes; reads no clock and nothing of the daemon. Whole without its
script, which only fetches it again. Every text is escaped, no value of a row is in it, and
nothing is loaded from anywhere else (`CONTENT_POLICY`).
"""

import dataclasses
from collections.abc import Sequence
from html import escape
from typing import Any, Final

from gaussdecode.daemon.status._assets import CONTENT_POLICY, SCRIPT, STYLE
from gaussdecode.daemon.status.advice import Advice, span
from gaussdecode.daemon.status.history import INTERVAL_SECONDS, Sample, series
from gaussdecode.daemon.status.landed import Commit, TableTally
from gaussdecode.daemon.status.limit import Limit, Stage
from gaussdecode.model.lsn import Lsn

__all__ = ["CONTENT_POLICY", "Picture", "render_page"]

_POINTS: Final = 200
_TABLES: Final = 50
_WIDTH, _HEIGHT = 600, 64
_UNITS: Final = ("B", "KB", "MB", "GB", "TB", "PB")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Everything the page shows, read at one moment.

    Attributes:
        status: the document of ``/status``.
        queues: per decoder, entries of the read and of the decode change queue.
        queue_size: ``parallel-queue-size``.
        limit: which stage limits.
        advice: warnings.
        samples: of the last half hour.
        rates: of the last seconds, or None.
        lane_count: ``landing.writer-lanes``.
        tables: most rows first.
        commits: newest first.
    """

    status: dict[str, Any]  # Any: JSON
    queues: Sequence[tuple[int, int]]
    queue_size: int
    limit: Limit
    advice: Sequence[Advice]
    samples: list[Sample]
    rates: Sample | None
    lane_count: int
    tables: Sequence[TableTally]
    commits: Sequence[Commit]


def render_page(picture: Picture) -> bytes:
    """Write the document."""
    slot = escape(str(picture.status["slot_name"]))
    parts = (
        _header(picture.status),
        _limit(picture.limit),
        _advice(picture.advice),
        _tiles(picture),
        '<div class="two">',
        _queues(picture),
        _waits(picture),
        "</div>",
        _snapshots(picture.status.get("snapshot") or {}),
        _charts(picture.samples),
        '<div class="two wide">',
        _tables(picture.tables),
        _server(picture.status.get("server")),
        "</div>",
        _commits(picture.commits),
        _footer(picture.status),
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{slot}: {escape(str(picture.status['state']))}</title>"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<noscript><meta http-equiv="refresh" content="5"></noscript>'
        f"<style>{STYLE}</style></head>\n<body>"
        '<div id="stale" role="status">No answer from the daemon; these are its last figures.</div>'
        f"<main>\n{''.join(parts)}</main>\n<script>{SCRIPT}</script></body></html>\n"
    ).encode()


# ---- figures -----------------------------------------------------------------------------


def _size(count: float) -> str:
    unit = 0
    while count >= 999.5 and unit < len(_UNITS) - 1:
        count /= 1000
        unit += 1
    return (
        f"{count:.0f} {_UNITS[unit]}"
        if not unit or count >= 99.5
        else f"{count:.1f} {_UNITS[unit]}"
    )


def _count(number: float) -> str:
    return f"{number:,.0f}".replace(",", "\u2009")


def _seconds(number: float) -> str:
    return f"{number:.1f} s" if number < 10 else span(number)


# ---- parts -------------------------------------------------------------------------------


def _header(status: dict[str, Any]) -> str:  # Any: JSON
    state = escape(str(status["state"]))
    detail = status.get("detail")
    more = f"<p>{escape(str(detail))}</p>" if detail else ""
    return (
        f"<header><h1>{escape(str(status['slot_name']))}</h1>"
        f'<span class="state {state}">{state}</span>{more}</header>\n'
    )


def _limit(limit: Limit) -> str:
    name = "No limit" if limit.stage is Stage.NONE else f"Limit: {limit.stage}"
    setting = f"<p>What moves it: {escape(limit.setting)}</p>" if limit.setting else ""
    return (
        f'<section id="limit"><p class="limit"><b>{escape(name)}.</b> {escape(limit.sentence)}</p>'
        f"{setting}</section>\n"
    )


def _advice(advice: Sequence[Advice]) -> str:
    if not advice:
        return ""
    items = "".join(
        f'<li class="{"error" if item.is_error else "warning"}">{escape(item.what)}'
        f"<span>{escape(item.action)} (operations guide: {escape(item.section)})</span></li>"
        for item in advice
    )
    return f'<section id="advice"><h2>Warnings</h2><ul class="advice">{items}</ul></section>\n'


def _tiles(picture: Picture) -> str:
    status, rates = picture.status, picture.rates or Sample(0.0)
    tiles = (
        ("lag", _size(status["lag_bytes"])),
        ("lag in time", _seconds(status["lag_seconds"])),
        ("received", f"{_size(rates.source_received_bytes_total)}/s"),
        ("decoded", f"{_count(rates.decode_rows_total)} rows/s"),
        ("landed", f"{_count(rates.land_rows_total)} rows/s"),
        ("decoders", str(status["parallel_decode_num"])),
        ("reader LSN", str(status["reader_lsn"])),
        ("durable LSN", str(status["durable_lsn"])),
        ("open transactions", str(status["working_txn_cnt"])),
        ("their memory", _size(status["working_txn_memory"])),
    )
    inner = "".join(f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in tiles)
    return f'<section id="now"><dl class="tiles">{inner}</dl></section>\n'


def _bar(*parts: tuple[float, str], label: str) -> str:
    """A bar of parts, each a share of the whole and a class; shares past 1 are cut."""
    shapes, start = [], 0.0
    for share, name in parts:
        width = min(max(share, 0.0), 1.0 - start) * 100
        shapes.append(
            f'<rect class="{name}" x="{start * 100:.1f}" width="{width:.1f}" height="12"/>'
        )
        start += width / 100
    return (
        f'<svg role="img" aria-label="{escape(label)}" viewBox="0 0 100 12" '
        'preserveAspectRatio="none"><rect class="track" width="100" height="12"/>'
        f"{''.join(shapes)}</svg>"
    )


def _queues(picture: Picture) -> str:
    rows = []
    for index, pair in enumerate(picture.queues):
        cells = "".join(
            f'<td><div class="bar">{_bar((length / picture.queue_size, name), label=f"{length} of {picture.queue_size}")}'
            f"<span>{length}</span></div></td>"
            for length, name in zip(pair, ("one", "two-fill"), strict=True)
        )
        rows.append(f"<tr><td>{index}</td>{cells}</tr>")
    body = "".join(rows) or '<tr><td colspan="3">not streaming</td></tr>'
    return (
        '<section id="queues"><h2>Queues per decoder, of '
        f'{picture.queue_size} entries</h2><table class="bars"><tr><th>decoder</th>'
        "<th>read change queue</th><th>decode change queue</th></tr>"
        f"{body}</table></section>\n"
    )


def _waits(picture: Picture) -> str:
    rates = picture.rates
    if rates is None:
        return '<section id="waits"><h2>What the stages do</h2><p>Too early to say.</p></section>\n'
    decoders = max(1, int(picture.status["parallel_decode_num"]))
    blocked = rates.collect_blocked_seconds_total
    stages = (
        ("reader", rates.source_busy_seconds_total, rates.source_stalled_seconds_total),
        ("decoders", rates.decode_busy_seconds_total / decoders,
         rates.decode_waited_output_seconds_total / decoders),
        ("collector", rates.collect_busy_seconds_total - blocked, blocked),
        ("writer lanes", rates.land_encoded_seconds_total / picture.lane_count, 0.0),
        ("publisher", rates.land_published_seconds_total, 0.0),
    )  # fmt: skip
    rows = "".join(
        f'<tr><td>{name}</td><td><div class="bar">'
        f"{_bar((works, 'one'), (stalls, 'two-fill'), label=f'works {works:.0%}, waits for room {stalls:.0%}')}"
        f"<span>{min(max(works, 0), 1):.0%}</span></div></td>"
        f"<td>{min(stalls, 1):.0%}</td></tr>"
        for name, works, stalls in stages
    )
    return (
        '<section id="waits"><h2>What the stages did in the last seconds</h2>'
        '<table class="bars"><tr><th>stage</th><th>works</th><th>waits for room</th></tr>'
        f"{rows}</table></section>\n"
    )


def _chart(samples: list[Sample], name: str, title: str, spell: Any) -> str:  # Any: a function
    points = series(samples, name, _POINTS)
    highest = max((value for _, value in points), default=0.0)
    newest = points[-1][1] if points else 0.0
    length = max((ago for ago, _ in points), default=0.0) or 1.0
    scale = highest or 1.0
    path = " ".join(
        f"{'L' if index else 'M'}{_WIDTH * (1 - ago / length):.1f},"
        f"{_HEIGHT - 2 - (_HEIGHT - 8) * value / scale:.1f}"
        for index, (ago, value) in enumerate(points)
    )
    area = f'<path class="area" d="{path} L{_WIDTH},{_HEIGHT} L0,{_HEIGHT} Z"/>' if path else ""
    label = f"{title}: now {spell(newest)}, highest {spell(highest)} in {span(length)}"
    return (
        f'<div class="chart"><p><span>{title}</span><b>{escape(spell(newest))}</b>'
        f"<span>highest {escape(spell(highest))}</span></p>"
        f'<svg role="img" aria-label="{escape(label)}" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'preserveAspectRatio="none">{area}<path d="{path}"/></svg></div>'
    )


def _charts(samples: list[Sample]) -> str:
    length = span(len(samples) * INTERVAL_SECONDS)
    charts = (
        ("source_lag_bytes", "lag", _size),
        ("source_lag_seconds", "lag in time", _seconds),
        ("source_received_bytes_total", "received", lambda value: f"{_size(value)}/s"),
        ("land_rows_total", "landed", lambda value: f"{_count(value)} rows/s"),
    )
    inner = "".join(_chart(samples, name, title, spell) for name, title, spell in charts)
    return f'<section id="history"><h2>The last {length}</h2><div class="two">{inner}</div></section>\n'


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{name}</th>" for name in header)
    head = f"<tr>{head}</tr>" if any(header) else ""
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    return f'<div class="scroll"><table>{head}{body}</table></div>'


def _tables(tables: Sequence[TableTally]) -> str:
    rows = [
        (t.name, _count(t.rows), _size(t.bytes), _count(t.files),
         " ".join(f"{op} {_count(n)}" for op, n in sorted(t.ops.items())), str(t.entry))
        for t in tables[:_TABLES]
    ]  # fmt: skip
    more = f"<p>and {len(tables) - _TABLES} more</p>" if len(tables) > _TABLES else ""
    content = (
        _table(("table", "rows", "size", "files", "operations", "newest entry"), rows)
        if rows
        else "<p>Nothing yet.</p>"
    )
    return f'<section id="tables"><h2>Landed since the start</h2>{content}{more}</section>\n'


def _snapshots(tables: dict[str, dict[str, Any]]) -> str:  # Any: JSON
    """Tables whose rows are being landed, or could not be; nothing when all have."""
    left = [(title, of) for title, of in tables.items() if of["state"] != "done"]
    if not left:
        return ""
    rows = [
        (
            title,
            str(of["state"]),
            f"{of['chunks_done']} of {of['chunks']}" if of["chunks"] else "-",
            _count(of["rows"]),
            _count(max(of["estimate"], of["rows"])),
            _size(of["bytes"]),
            "-" if of["seconds_left"] is None else _seconds(of["seconds_left"]),
            str(of["reason"] or ""),
        )
        for title, of in left[:_TABLES]
    ]
    more = f"<p>{len(left) - _TABLES} more</p>" if len(left) > _TABLES else ""
    header = ("table", "state", "pieces", "rows", "of about", "read", "left", "")
    return f"<section><h2>Existing rows</h2>{_table(header, rows)}{more}</section>\n"


def _server(server: dict[str, Any] | None) -> str:  # Any: JSON
    if server is None:
        return '<section id="server"><h2>Slot and disk</h2><p>Not yet looked at.</p></section>\n'
    rows = [("free on the disk", _size(server["free_bytes"]))]
    if server["full_seconds"] is not None:
        rows.append(("full in", span(server["full_seconds"])))
    slot = server["slot"]
    if slot is not None:
        safe, retained = slot["safe_bytes"], slot["retained_bytes"]
        sender = slot["wait_event"] or ("computes" if slot["is_active"] else "not there")
        rows += [
            ("WAL kept for the slot", "-" if retained is None else _size(retained)),
            ("WAL until it may be lost", "no limit" if safe is None else _size(safe)),
            ("WAL status", slot["wal_status"] or "no slot"),
            ("confirmed, as the server has it", str(Lsn(slot["confirmed_lsn"] or 0))),
            ("the server's sender", sender),
            ("spilled while decoding", _size(slot["spilled_bytes"] or 0)),
        ]
    if server["invalidation_seconds"] is not None:
        rows.append(("may be lost in", span(server["invalidation_seconds"])))
    rows.append(("guard", server["guard_step"]))
    return f'<section id="server"><h2>Slot and disk</h2>{_table(("", ""), rows)}</section>\n'


def _commits(commits: Sequence[Commit]) -> str:
    rows = [
        (str(c.n), c.kind, str(Lsn(c.lsn)), f"{c.published:%Y-%m-%d %H:%M:%S}",
         "-" if c.commit_time is None else f"{c.commit_time:%Y-%m-%d %H:%M:%S}",
         str(c.tables), str(c.files), _count(c.rows), _size(c.bytes))
        for c in commits
    ]  # fmt: skip
    header = ("entry", "kind", "position", "published (UTC)", "newest transaction (UTC)", "tables",
              "files", "rows", "size")  # fmt: skip
    content = _table(header, rows) if rows else "<p>Nothing yet.</p>"
    return f'<section id="commits"><h2>Last publications</h2>{content}</section>\n'


def _footer(status: dict[str, Any]) -> str:  # Any: JSON
    return (
        f"<footer><p>gaussdecode {escape(str(status['version']))}, process {status['pid']}, "
        f"landing {escape(str(status['root']))}, entry {status['entry']}</p></footer>"
    )
