"""Format the screen of `top` as terminal lines. Pure: given slots, size and the selected slot."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, Final

from gaussdecode.daemon.status.fleet import Member, summary
from gaussdecode.daemon.status.members import member_line
from gaussdecode.daemon.status.page import describe_source

_MARKS: Final = {"error": "!! ", "warning": "!  ", "note": ".  ", "good": "   "}
_COLOURS: Final = {"error": "31", "warning": "33", "note": "36", "good": "32"}
_LEFT: Final = frozenset({"slot", "state", "durable LSN"})  # aligned to the left
_DROPPED: Final = ("up", "memory", "durable LSN", "queues", "rows/s", "lag", "behind")
"""Columns that a narrow terminal does without, the first first."""
_CAUSE: Final = 24  # columns that the first cause is worth; arbitrary
_LONGEST_NAME: Final = 24
_GAP: Final = "  "
_KEYS: Final = "up and down: choose   q: end"


class Paint:
    """Escape sequences, or nothing if they are not wanted.

    Args:
        is_live: the command owns the terminal: the selected line is inverted.
        has_colour: colours are wanted.
    """

    def __init__(self, *, is_live: bool = False, has_colour: bool = False) -> None:
        self._is_live = is_live
        self._has_colour = has_colour

    def level(self, level: str, text: str) -> str:
        """In the colour of a severity level."""
        return f"\x1b[{_COLOURS[level]}m{text}\x1b[39m" if self._has_colour else text

    def chosen(self, text: str) -> str:
        """Inverted."""
        return f"\x1b[7m{text}\x1b[27m" if self._is_live else text

    def strong(self, text: str) -> str:
        """Bold."""
        return f"\x1b[1m{text}\x1b[22m" if self._is_live else text


def frame(
    members: Sequence[Member], chosen: int, width: int, height: int, clock: str, paint: Paint
) -> list[str]:
    """Format a full screen: at most `height` lines of at most `width` columns.

    Args:
        members: slots, the worst first.
        chosen: index of the selected slot, which is explained below the table.
        width: width of the terminal.
        height: height of the terminal.
        clock: time of these figures.
        paint: escape sequences for emphasis.
    """
    title = summary(members)
    room = width - len(title)
    head = paint.strong(f"{title}{clock:>{room}}" if room > len(clock) else title[:width])
    header, *rows = table_lines(members, width, paint, chosen)
    details = list(_details(members[chosen], width)) if members else []
    room = max(1, height - 5)
    kept = min(len(rows), max(1, room - len(details) - 1, room // 2))
    first = min(max(0, chosen - kept + 1), len(rows) - kept) if rows else 0
    lines = [head, "", paint.strong(header), *rows[first : first + kept], ""]
    lines += [line[:width] for line in details[: max(0, height - len(lines) - 1)]]
    return [*lines[: height - 1], _KEYS[:width]]


def table_lines(
    members: Sequence[Member], width: int | None, paint: Paint, chosen: int | None = None
) -> list[str]:
    """A header and a line for each slot; without a width, as wide as needed."""
    cells = [_shortened(member.cells()) for member in members]
    columns = list(cells[0]) if cells else []
    sizes = {name: max(len(name), *(len(of[name]) for of in cells)) for name in columns}
    if width is not None:
        columns = _fitting(columns, sizes, width)
    header = _line("   ", {name: name for name in columns}, sizes) + _GAP + "first cause"
    lines = [header if width is None else header[:width]]
    for index, (member, of) in enumerate(zip(members, cells, strict=True)):
        text = _line(_MARKS[member.level], {name: of[name] for name in columns}, sizes)
        text += _GAP + member.first_cause
        if width is not None:
            text = text[:width].ljust(width)
        shown = paint.chosen(text) if index == chosen else paint.level(member.level, text)
        lines.append(shown if width is not None else shown.rstrip())
    return lines


def _shortened(cells: dict[str, str]) -> dict[str, str]:
    cells = {column: cell.replace("\u2009", " ") for column, cell in cells.items()}
    name = cells["slot"]
    long = len(name) > _LONGEST_NAME
    return {**cells, "slot": f"{name[: _LONGEST_NAME - 2]}.." if long else name}


def _fitting(columns: list[str], sizes: dict[str, int], width: int) -> list[str]:
    kept = list(columns)
    for name in _DROPPED:
        if len(_MARKS["good"]) + sum(sizes[other] + len(_GAP) for other in kept) + _CAUSE <= width:
            break
        kept.remove(name)
    return kept


def _line(mark: str, cells: dict[str, str], sizes: dict[str, int]) -> str:
    texts = (
        cell.ljust(sizes[name]) if name in _LEFT else cell.rjust(sizes[name])
        for name, cell in cells.items()
    )
    return mark + _GAP.join(texts)


def _details(member: Member, width: int) -> Iterator[str]:
    """The slot's source and all its problems; commands are on lines of their own."""
    about = describe_source(member.record.get("source") or {})
    yield from _folded("", f"{member.slot}: {about or member.state}", width)
    if not member.causes:
        limit: dict[str, Any] = member.record.get("limit") or {}  # Any: JSON
        yield f"  well. {limit.get('sentence') or ''}".rstrip()
    for of in member.record.get("sources") or ():
        yield from _folded("  ", member_line(of), width)
    for cause in member.causes:
        yield from _folded(
            _MARKS.get(str(cause.get("severity")), "!  "), str(cause.get("what")), width
        )
        sentence, commands = _without_commands(str(cause.get("action")))
        yield from _folded("   ", sentence, width)
        yield from (f"     {command}" for command in commands)


def _without_commands(action: str) -> tuple[str, list[str]]:
    """Replace the commands in a sentence by numbers; return both, so that commands print whole."""
    parts = action.split("`")
    commands = parts[1::2]
    marked = (
        f"({number})" if len(commands) > 1 else "(below)" for number in range(1, len(commands) + 1)
    )
    sentence = "".join(text if index % 2 == 0 else next(marked) for index, text in enumerate(parts))
    names = [f"({number}) " if len(commands) > 1 else "" for number in range(1, len(commands) + 1)]
    return sentence, [name + command for name, command in zip(names, commands, strict=True)]


def _folded(head: str, text: str, width: int) -> Iterator[str]:
    yield from textwrap.wrap(
        text, max(width, 20), initial_indent=head, subsequent_indent=" " * len(head),
        break_on_hyphens=False,
    )  # fmt: skip
