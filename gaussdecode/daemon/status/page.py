"""Render the status page: the content of `status` and the dashboard as one HTML document.

Given a `Picture`, gives bytes. It reads no clock and no state of the daemon. The page is complete without
its script, which only fetches the page again and copies commands. It never shows a row's values. Each
cause stands once, with its consequences, the worst first. The limit is named only where no cause names it.

The daemon renders the page itself. A JSON interface and a drawing script would be two versions of the
truth, and would show nothing without the script.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

from gaussdecode.daemon.status.clients import COLUMNS as SLOT_COLUMNS
from gaussdecode.daemon.status.clients import serve_line, slot_cells
from gaussdecode.daemon.status.history import INTERVAL_SECONDS, Sample, series
from gaussdecode.daemon.status.holders import HOLDERS
from gaussdecode.daemon.status.html import (
    chip,
    document,
    line_of,
    scrolled,
    table_of,
    with_commands,
)
from gaussdecode.daemon.status.landed import Commit, TableTally
from gaussdecode.daemon.status.limit import WINDOW_SECONDS, Limit, Stage
from gaussdecode.daemon.status.members import COLUMNS, member_cells
from gaussdecode.daemon.status.queues import Fill
from gaussdecode.daemon.status.text import UNKNOWN, count, known, size, span
from gaussdecode.daemon.status.trouble import Cause, State, Trouble, find_causes
from gaussdecode.model.lsn import Lsn

_POINTS: Final = 200
_TABLES: Final = 50
_WIDTH, _HEIGHT = 600, 64
_LOGIN: Final = '<label>Token <input id="token" type="password" autocomplete="off"></label> '
_BUTTONS: Final = (
    " ".join(
        f'<button id="act-{act}" class="act" type="button">{act}</button>'
        for act in ("pause", "resume", "reload", "reconnect", "rotate")
    )
    + '</p><p><label>Table <input id="act-table" placeholder="schema.name"></label> '
    + " ".join(
        f'<button id="act-{act}" class="act of-table" type="button">{act}</button>'
        for act in ("snapshot", "add", "drop")
    )
    + '</p></form><p id="acted" role="status"></p></section>\n'
)
_PRODUCTS: Final = {"postgresql": "PostgreSQL", "gaussdb": "GaussDB", "capture": "a recording"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Everything the page shows, read at one moment.

    Attributes:
        status: the document of ``/status``.
        queues: per decoder, the read and the decode change queue.
        limit: the limiting stage.
        troubles: problems, the worst first.
        samples: samples of the last half hour.
        rates: rates of the last seconds, or None.
        lane_count: threads that encode.
        tables: most rows first.
        commits: newest first.
        has_acts: the daemon takes acts over HTTP, with a token.
    """

    status: dict[str, Any]  # Any: JSON
    queues: Sequence[tuple[Fill, Fill]]
    limit: Limit
    troubles: Sequence[Trouble]
    samples: list[Sample]
    rates: Sample | None
    lane_count: int
    tables: Sequence[TableTally]
    commits: Sequence[Commit]
    has_acts: bool = False


def render_page(picture: Picture, certified: str | None = None) -> bytes:
    """Write the document.

    Args:
        picture: what it shows.
        certified: the name in the client's certificate, which is good in place of a token; None without one.
    """
    status, causes = picture.status, find_causes(picture.troubles)
    level = str(causes[0].severity) if causes else "good"
    parts = (
        _header(status, level),
        _causes(causes),
        _limit(picture),
        _tiles(picture),
        '<div class="two" id="work">',
        _queues(picture),
        _waits(picture),
        "</div>",
        _members(status.get("sources") or []),
        _snapshots(status.get("snapshot") or {}),
        _virtual_slots(status.get("virtual_slots") or [], status.get("serve")),
        _charts(picture),
        '<div class="two wide" id="landed">',
        _tables(picture.tables),
        _server(status.get("server")),
        "</div>",
        _commits(picture.commits),
        _acts(certified) if picture.has_acts or certified is not None else "",
        _footer(status),
    )
    worst = "" if level == "good" else f" ({level})"
    return document(f"{status['slot_name']}: {status['state']}{worst}", "".join(parts), level)


# ---- figures -----------------------------------------------------------------------------


def _seconds(number: float) -> str:
    return f"{number:.1f} s" if number < 10 else span(number)


# ---- parts -------------------------------------------------------------------------------


def _acts(certified: str | None) -> str:
    """Never replaced by the script: what was typed stays."""
    who = _LOGIN if certified is None else f"With the certificate {escape(certified)}: "
    return f'<section id="acts"><h2>Act on the daemon</h2><form><p>{who}{_BUTTONS}'


def _header(status: dict[str, Any], level: str) -> str:  # Any: JSON
    facts = [describe_source(status.get("source") or {})]
    if status.get("uptime_seconds") is not None:
        facts.append(f"up {span(status['uptime_seconds'])}")
    return (
        f'<header id="who"><h1>{escape(str(status["slot_name"]))}</h1>{chip(str(status["state"]), level)}'
        f"<p>{escape('; '.join(filter(None, facts)))}</p></header>\n"
    )


def describe_source(source: Mapping[str, Any]) -> str:  # Any: JSON
    """Describe the source: kind, version and address."""
    if not source:
        return ""
    name = _PRODUCTS.get(source.get("kind", ""), "")
    version, plugin = source.get("version"), source.get("plugin")
    database = f", database {source['database']}" if source.get("database") else ""
    return (
        f"{name}{f' {version}' if version else ''} at {source.get('host')}{database}"
        f"{f', {plugin}' if plugin else ''}"
    )


def _causes(causes: Sequence[Cause]) -> str:
    if not causes:
        return ""
    items = "".join(
        f'<li class="{cause.severity}"><p><b>{str(cause.severity).capitalize()}:</b> '
        f"{escape(cause.trouble.what)}</p>{_consequences(cause)}"
        f"<p>{with_commands(cause.trouble.action, cause.trouble.state.name)} {_runbook(cause.trouble.state)}</p></li>"
        for cause in causes
    )
    title = "1 problem" if len(causes) == 1 else f"{len(causes)} problems"
    return f'<section id="causes"><h2>{title}</h2><ul class="causes">{items}</ul></section>\n'


def _consequences(cause: Cause) -> str:
    told = " ".join(trouble.what for trouble in cause.consequences)
    return f"<p>Consequences: {escape(told)}</p>" if told else ""


def _runbook(state: State) -> str:
    return (
        f'<a id="runbook-{state.name}" href="{escape(state.runbook)}" '
        f'aria-label="Runbook of {escape(state.alert)}">Runbook</a>'
    )


def _limit(picture: Picture) -> str:
    """The limit, unless a cause names it."""
    limit, told = picture.limit, {trouble.state.name for trouble in picture.troubles}
    if limit.stage in {Stage.CONNECTION, Stage.DISK} or told & {"lagging", "process-stopped"}:
        return ""
    name = "No limit" if limit.stage is Stage.NONE else f"Limit: {limit.stage}"
    setting = f"<p>Remedy: {escape(limit.setting)}</p>" if limit.setting else ""
    return (
        f'<section id="limit"><p class="limit"><b>{escape(name)}.</b> {escape(limit.sentence)}</p>'
        f"{setting}</section>\n"
    )


def _rate(picture: Picture, name: str) -> float | None:
    """A rate of the last seconds; None while there is only one sample."""
    return None if picture.rates is None else float(getattr(picture.rates, name))


def _tiles(picture: Picture) -> str:
    status = picture.status
    tiles = (
        ("lag", known(status["lag_bytes"], size)),
        ("lag in time", known(status["lag_seconds"], _seconds)),
        ("received", known(_rate(picture, "source_received_bytes_total"), _size_rate)),
        ("decoded", known(_rate(picture, "decode_rows_total"), _row_rate)),
        ("landed", known(_rate(picture, "land_rows_total"), _row_rate)),
        ("decoders", str(status["parallel_decode_num"])),
        ("reader LSN", str(status["reader_lsn"] or UNKNOWN)),
        ("durable LSN", str(status["durable_lsn"] or UNKNOWN)),
        ("open transactions", str(status["working_txn_cnt"])),
        ("memory of open transactions", size(status["working_txn_memory"])),
        ("spooled to disk", size(status["working_txn_spooled"])),
        ("spooled batches", count(status["working_txn_spooled_batches"])),
        ("prepared transactions", str(status["prepared_txn_cnt"])),
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


def _spelled(fill: Fill) -> str:
    return (
        f"{fill.entries} of {fill.max_entries} batches, {size(fill.bytes)} of "
        f"{size(fill.max_bytes)}"
    )


def _bars(name: str, columns: Sequence[str], body: str) -> str:
    """The rest of a section: a table of bars."""
    cells = "".join(f'<th scope="col">{column}</th>' for column in columns)
    table = f'<table class="bars"><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>'
    return f"{scrolled(name, columns[0], table)}</section>\n"


def _queues(picture: Picture) -> str:
    rows = []
    for index, pair in enumerate(picture.queues):
        cells = "".join(
            f'<td><div class="bar">{_bar((fill.share, name), label=_spelled(fill))}'
            f'<span title="{_spelled(fill)}">{fill.length}</span></div></td>'
            for fill, name in zip(pair, ("one", "two-fill"), strict=True)
        )
        rows.append(f'<tr><th scope="row">{index}</th>{cells}</tr>')
    bound = f", full at {picture.queues[0][0].max_entries}" if picture.queues else ""
    body = "".join(rows) or '<tr><td colspan="3">not streaming</td></tr>'
    return f'<section id="queues"><h2>Queues per decoder{bound}</h2>' + _bars(
        "queues", ("decoder", "read change queue", "decode change queue"), body
    )


def _waits(picture: Picture) -> str:
    rates = picture.rates
    if rates is None:
        return '<section id="waits"><h2>Work of the stages</h2><p>No figures yet.</p></section>\n'
    decoders = max(1, int(picture.status["parallel_decode_num"]))
    blocked = rates.collect_blocked_seconds_total
    stages = (
        ("reader", rates.source_busy_seconds_total, rates.source_stalled_seconds_total),
        (
            "decoders",
            rates.decode_busy_seconds_total / decoders,
            rates.decode_waited_output_seconds_total / decoders,
        ),
        ("collector", rates.collect_busy_seconds_total - blocked, blocked),
        ("writer lanes", rates.land_encoded_seconds_total / picture.lane_count, 0.0),
        ("committer", rates.land_published_seconds_total, 0.0),
    )
    rows = "".join(
        f'<tr><th scope="row">{name}</th><td><div class="bar">'
        f"{_bar((works, 'one'), (stalls, 'two-fill'), label=f'works {works:.0%}, waits for space {stalls:.0%}')}"
        f"<span>{min(max(works, 0), 1):.0%}</span></div></td>"
        f"<td>{min(stalls, 1):.0%}</td></tr>"
        for name, works, stalls in stages
    )
    return '<section id="waits"><h2>Work of the stages in the last seconds</h2>' + _bars(
        "waits", ("stage", "works", "waits for space"), rows
    )


def _chart(
    points: Sequence[tuple[float, float]], title: str, present: float | None, spell: Any
) -> str:  # Any: a function
    """One line chart, which ends at the present figure; where nothing is known, there is no line."""
    now = known(present, spell)
    if points:  # the newest sample may be some seconds old
        newest = (0.0, math.nan if present is None else float(present))
        points = [*(point for point in points if point[0]), newest]
    highest = max((value for _, value in points if not math.isnan(value)), default=0.0)
    length = max((ago for ago, _ in points), default=0.0) or 1.0
    label = f"{title}: now {now}, highest {spell(highest)} in {span(length)}"
    times = "".join(f"<span>{time}</span>" for time in (_ago(length), _ago(length / 2), "now"))
    return (
        f'<div class="chart"><p><span>{title}</span><b>{escape(now)}</b>'
        f"<span>highest {escape(spell(highest))}</span></p>"
        f'<svg role="img" aria-label="{escape(label)}" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'preserveAspectRatio="none">{line_of(points, _WIDTH, _HEIGHT)}</svg><p aria-hidden="true">{times}</p></div>'
    )


def _ago(seconds: float) -> str:
    return f"{span(seconds)} ago"


def _charts(picture: Picture) -> str:
    """The last half hour; the present figure of each chart is that of its tile."""
    status, samples = picture.status, picture.samples
    received = _rate(picture, "source_received_bytes_total")
    waiting, done = (sum(pair[side].entries for pair in picture.queues) for side in (0, 1))
    charts = (
        ("source_lag_bytes", "lag", status["lag_bytes"], size),
        ("source_lag_seconds", "lag in time", status["lag_seconds"], _seconds),
        ("source_received_bytes_total", "received", received, _size_rate),
        ("land_rows_total", "landed", _rate(picture, "land_rows_total"), _row_rate),
        ("read_change_queue_entries", "read change queues", waiting, _batches),
        ("decode_change_queue_entries", "decode change queues", done, _batches),
    )
    inner = "".join(
        _chart(series(samples, name, _POINTS, WINDOW_SECONDS), title, present, spell)
        for name, title, present, spell in charts
    )
    length = span(len(samples) * INTERVAL_SECONDS)
    return f'<section id="history"><h2>The last {length}</h2><div class="two">{inner}</div></section>\n'


def _size_rate(number: float) -> str:
    return f"{size(number)}/s"


def _row_rate(number: float) -> str:
    return f"{count(number)} rows/s"


def _batches(number: float) -> str:
    return f"{count(number)} batches"


def _scrolled(name: str, label: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return scrolled(name, label, table_of(header, rows))


def _tables(tables: Sequence[TableTally]) -> str:
    rows = [
        (
            t.name,
            count(t.rows),
            size(t.bytes),
            count(t.files),
            ", ".join(f"{op} {count(n)}" for op, n in sorted(t.ops.items())),
            str(t.entry),
        )
        for t in tables[:_TABLES]
    ]
    more = f"<p>and {len(tables) - _TABLES} more</p>" if len(tables) > _TABLES else ""
    header = ("table", "rows", "size", "files", "operations", "newest entry")
    content = _scrolled("tables", "Landed tables", header, rows) if rows else "<p>Nothing yet.</p>"
    return f'<section id="tables"><h2>Landed since the start</h2>{content}{more}</section>\n'


def _members(sources: Sequence[Mapping[str, Any]]) -> str:  # Any: JSON
    """Each source, where what waits for what among them is told."""
    if not sources:
        return ""
    table = _scrolled("sources", "Sources", COLUMNS, [member_cells(of) for of in sources])
    return f'<section id="sources"><h2>Sources</h2>{table}</section>\n'


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
            count(of["rows"]),
            count(max(of["estimate"], of["rows"])),
            size(of["bytes"]),
            "-" if of["seconds_left"] is None else _seconds(of["seconds_left"]),
            str(of["reason"] or ""),
        )
        for title, of in left[:_TABLES]
    ]
    more = f"<p>{len(left) - _TABLES} more</p>" if len(left) > _TABLES else ""
    header = ("table", "state", "chunks", "rows", "estimated rows", "read", "left", "reason")
    table = _scrolled("snapshot", "Existing rows", header, rows)
    return f'<section id="snapshot"><h2>Existing rows</h2>{table}{more}</section>\n'


def _virtual_slots(
    slots: Sequence[Mapping[str, Any]], serve: Mapping[str, Any] | None
) -> str:  # Any: JSON
    """The clients of gaussdecode serve; nothing without a slot or a server in the daemon."""
    if not slots and serve is None:
        return ""
    server = "" if serve is None else f"<p>{escape(serve_line(serve))}</p>"
    more = f"<p>{len(slots) - _TABLES} more</p>" if len(slots) > _TABLES else ""
    rows = [slot_cells(of) for of in slots[:_TABLES]]
    table = _scrolled("clients", "Virtual slots", SLOT_COLUMNS, rows) if rows else ""
    return f'<section id="clients"><h2>Virtual slots</h2>{server}{table}{more}</section>\n'


def _server(server: dict[str, Any] | None) -> str:  # Any: JSON
    if server is None:
        return '<section id="server"><h2>Slot and disk</h2><p>Not checked yet.</p></section>\n'
    rows = [("free disk space", size(server["free_bytes"]))]
    if server["full_seconds"] is not None:
        rows.append(("disk full in", span(server["full_seconds"])))
    slot = server["slot"]
    if slot is not None:
        safe, retained = slot["safe_bytes"], slot["retained_bytes"]
        sender = slot["wait_event"] or ("computing" if slot["is_active"] else "not connected")
        rows += [
            ("WAL kept for the slot", "-" if retained is None else size(retained)),
            *_held(server.get("held_by"), slot),
            ("WAL until the slot may be lost", "no limit" if safe is None else size(safe)),
            ("WAL status", slot["wal_status"] or "no slot"),
            ("confirmed LSN on the server", str(Lsn(slot["confirmed_lsn"] or 0))),
            ("the server's sender", sender),
            ("spilled while decoding", size(slot["spilled_bytes"] or 0)),
        ]
    if server["invalidation_seconds"] is not None:
        rows.append(("slot may be lost in", span(server["invalidation_seconds"])))
    rows.append(("guard", server["guard_step"]))
    return (
        '<section id="server"><h2>Slot and disk</h2>'
        f"{scrolled('server', 'Slot and disk', table_of((), rows, kind='facts'))}</section>\n"
    )


def _held(holder: str | None, slot: dict[str, Any]) -> Iterator[tuple[str, str]]:  # Any: JSON
    """The reason why WAL is kept, and the age of the server's oldest transactions."""
    if holder is not None and holder in HOLDERS:
        yield "WAL is kept for", HOLDERS[holder].told(slot)
    ages = {"kept by the slot": "catalog_xmin_age", "not frozen": "frozen_age"}
    for name, field in ages.items():
        age = slot.get(field)
        if age is not None:
            yield f"oldest transaction {name}", f"{count(age)} transactions ago"


def _commits(commits: Sequence[Commit]) -> str:
    rows = [
        (
            str(c.n),
            c.kind,
            str(Lsn(c.lsn)),
            f"{c.committed_time:%Y-%m-%d %H:%M:%S}",
            "-" if c.commit_time is None else f"{c.commit_time:%Y-%m-%d %H:%M:%S}",
            str(c.tables),
            str(c.files),
            count(c.rows),
            size(c.bytes),
        )
        for c in commits
    ]
    times = ("committed (UTC)", "newest transaction (UTC)")
    header = ("entry", "kind", "position", *times, "tables", "files", "rows", "size")
    content = _scrolled("commits", "Last entries", header, rows) if rows else "<p>Nothing yet.</p>"
    return f'<section id="commits"><h2>Last entries</h2>{content}</section>\n'


def _footer(status: dict[str, Any]) -> str:  # Any: JSON
    return (
        f'<footer id="about"><p>gaussdecode {escape(str(status["version"]))}, process {status["pid"]}, '
        f"landing {escape(str(status['root']))}, entry {status['entry']}. "
        '<a id="guide" href="/alerts">All runbooks</a></p></footer>'
    )
