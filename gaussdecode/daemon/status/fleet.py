"""List the slots of one machine, each with its daemon's status or the reason why there is none.

Pure: the caller gives the answers of ``/status``. The worst comes first, so that a problem is on the first
line of a terminal and at the top of a phone.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final
from urllib.parse import quote

from gaussdecode.daemon.status.html import (
    chip,
    document,
    line_of,
    scrolled,
    table_of,
    with_commands,
)
from gaussdecode.daemon.status.page import describe_source
from gaussdecode.daemon.status.text import UNKNOWN, count, size, span
from gaussdecode.model.words import counted

LEVELS: Final = ("error", "warning", "note", "good")
_TREND: Final = "lag of the last half hour"
_WIDTH, _HEIGHT = 120, 24
_DOWN: Final = "/alerts#gaussdecodedown"


@dataclasses.dataclass(frozen=True, slots=True)
class Member:
    """One slot.

    Attributes:
        name: name of the configuration, without its ending: the instance of the unit.
        state: state of the daemon, or why there is none to ask.
        record: its answer; empty without one.
        causes: problems, the worst first: ``severity``, ``what``, ``action``, ``runbook``.
    """

    name: str
    state: str
    record: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # Any: JSON
    causes: Sequence[Mapping[str, Any]] = ()

    @classmethod
    def answering(cls, name: str, record: Mapping[str, Any]) -> "Member":
        """One whose daemon has answered."""
        causes = record.get("causes") or record.get("troubles") or ()
        return cls(name, str(record.get("state")), record, causes)

    @classmethod
    def silent(cls, name: str, state: str, what: str, action: str) -> "Member":
        """One whose daemon is not to be asked, and why."""
        cause = {"severity": "error", "what": what, "action": action, "runbook": _DOWN}
        return cls(name, state, causes=(cause,))

    @property
    def slot(self) -> str:
        """Name of its slot, as far as that is known."""
        return str(self.record.get("slot_name", self.name))

    @property
    def level(self) -> str:
        """How bad it is, one of `LEVELS`."""
        if not self.causes:
            return "good"
        severity = str(self.causes[0].get("severity"))
        return severity if severity in LEVELS else "error"

    @property
    def is_well(self) -> bool:
        """Whether it streams, lands, and lacks nothing."""
        return self.record.get("is_well") is True

    @property
    def first_cause(self) -> str:
        """The first problem, in a sentence; empty without one."""
        return str(self.causes[0]["what"]) if self.causes else ""

    def cells(self) -> dict[str, str]:
        """Cells of both tables, by column; a dash where a value is not known."""
        of = self.record
        queues = of.get("queues") or ()
        fills = [
            max(queue[side]["share"] for queue in queues) if queues else None
            for side in ("read", "decode")
        ]
        return {
            "slot": self.slot,
            "state": self.state,
            "lag": _spelled(of.get("lag_bytes"), size),
            "behind": _spelled(of.get("lag_seconds"), span),
            "rows/s": _spelled(of.get("rows_per_second"), count),
            "durable LSN": str(of.get("durable_lsn") or UNKNOWN),
            "queues": " ".join(_spelled(fill, lambda share: f"{share:.0%}") for fill in fills),
            "memory": _spelled(of.get("memory_bytes"), size),
            "up": _spelled(of.get("uptime_seconds"), span),
        }


def _spelled(value: Any, spell: Any) -> str:  # Any: JSON; a function
    return "-" if value is None else str(spell(value))


def worst_first(members: Sequence[Member]) -> list[Member]:
    """Sort, the worst first; equally bad slots by name, so that lines stay where they are."""
    return sorted(members, key=lambda member: (LEVELS.index(member.level), member.name))


def summary(members: Sequence[Member]) -> str:
    """How many there are, and how they are."""
    levels = [member.level for member in members]
    words = {"error": "with errors", "warning": "with warnings", "note": "starting", "good": "ok"}
    told = [f"{levels.count(level)} {words[level]}" for level in LEVELS if level in levels]
    return f"{counted(len(members), 'slot')}: {', '.join(told)}"


def render_fleet(host: str, members: Sequence[Member]) -> bytes:
    """Write the page.

    Args:
        host: name of the machine.
        members: the worst first.
    """
    level = members[0].level if members else "note"
    header = f'<header id="who"><h1>{escape(host)}</h1>{chip(summary(members), level)}</header>\n'
    columns = [*members[0].cells(), _TREND] if members else []
    rows = [_row(member) for member in members]
    table = scrolled("slots", "Slots", table_of(columns, rows, is_html=True))
    section = f'<section id="slots"><h2>Slots of this machine</h2>{table}</section>\n'
    guide = '<footer id="about"><p><a id="guide" href="/alerts">All runbooks</a></p></footer>'
    told = "".join(_causes(member) for member in members)
    return document(f"{host}: {summary(members)}", header + section + told + guide, level)


def _row(member: Member) -> list[str]:
    cells = {name: escape(cell) for name, cell in member.cells().items()}
    if member.record:
        cells["slot"] = (
            f'<a id="slot-{escape(member.name)}" href="/slots/{quote(member.name)}">{cells["slot"]}</a>'
        )
    cells["state"] = chip(member.state, member.level)
    return [*cells.values(), _trend(member)]


def _trend(member: Member) -> str:
    """The lag of the last half hour as a line; a dash where the daemon does not tell."""
    points = [
        (float(ago), math.nan if lag is None else float(lag))
        for ago, lag in member.record.get("lag_history") or ()
    ]
    known = [lag for _, lag in points if not math.isnan(lag)]
    if not known:
        return UNKNOWN
    now = "unknown" if math.isnan(points[-1][1]) else span(points[-1][1])
    label = f"lag of {member.slot}: at most {span(max(known))}, now {now}"
    return (
        f'<div class="chart trend"><svg role="img" aria-label="{escape(label)}" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'preserveAspectRatio="none">{line_of(points, _WIDTH, _HEIGHT)}</svg></div>'
    )


def _causes(member: Member) -> str:
    if not member.causes:
        return ""
    name = escape(member.name)
    items = "".join(
        f'<li class="{escape(str(cause.get("severity")))}"><p>{escape(str(cause.get("what")))}</p>'
        f"<p>{with_commands(str(cause.get('action')), f'{name}-{number}')} "
        f'<a id="runbook-{name}-{number}" href="{escape(_runbook(cause))}" '
        f'aria-label="Runbook {number + 1} of {name}">Runbook</a></p></li>'
        for number, cause in enumerate(member.causes)
    )
    source = describe_source(member.record.get("source") or {})
    about = f"<p>{escape(source)}</p>" if source else ""
    return (
        f'<section id="causes-{name}"><h2>{escape(member.slot)}</h2>{about}'
        f'<ul class="causes">{items}</ul></section>\n'
    )


def _runbook(cause: Mapping[str, Any]) -> str:  # Any: JSON
    """Our own copy of it: what another process says is no address that we would lead to."""
    _, _, section = str(cause.get("runbook", "")).partition("#")
    return f"/alerts#{quote(section)}"
