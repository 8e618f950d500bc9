"""Format the screen of `top` as terminal lines. Pure: given slots, size and the selected slot.

Widths are columns of a terminal, of which some letters take two. What does not fit is folded, or cut where
two dots say so: half a number would be another one.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any, Final

from gaussdecode.daemon.status.fleet import Member, summary
from gaussdecode.daemon.status.members import member_line
from gaussdecode.daemon.status.page import describe_source
from gaussdecode.model.words import printable

_MARKS: Final = {"error": "!! ", "warning": "!  ", "note": ".  ", "good": "   "}
_COLOURS: Final = {"error": "31", "warning": "33", "note": "36", "good": "32"}
_LEFT: Final = frozenset({"slot", "state", "durable LSN"})  # aligned to the left
_DROPPED: Final = ("up", "memory", "durable LSN", "queues", "rows/s", "lag", "behind")
"""Columns that a narrow terminal does without, the first first."""
_CAUSE: Final = 24  # columns that the first cause is worth; arbitrary
_LONGEST_NAME: Final = 24
_GAP: Final = "  "
_KEYS: Final = "up and down: choose   q: end"
_CUT: Final = ".."
_CAUSE_TITLE: Final = "first cause"
_WORD: Final = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*"|['"])+""")  # a quoted text is not parted


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
    head = paint.strong(f"{title}{clock:>{room}}" if room > len(clock) else _fit(title, width))
    header, *rows = table_lines(members, width, paint, chosen)
    details = list(_details(members[chosen], width)) if members else []
    room = max(1, height - 5)
    kept = min(len(rows), max(1, room - len(details) - 1, room // 2))
    first = min(max(0, chosen - kept + 1), len(rows) - kept) if rows else 0
    lines = [head, "", paint.strong(header), *rows[first : first + kept], ""]
    lines += [_fit(line, width) for line in details[: max(0, height - len(lines) - 1)]]
    return [*lines[: height - 1], _fit(_KEYS, width)]


def table_lines(
    members: Sequence[Member], width: int | None, paint: Paint, chosen: int | None = None
) -> list[str]:
    """A header and a line for each slot; without a width, as wide as needed."""
    rows = [_readable(member.cells()) for member in members]
    if width is not None:
        names = _shortened([of["slot"] for of in rows])
        rows = [{**of, "slot": name} for of, name in zip(rows, names, strict=True)]
    columns = list(rows[0]) if rows else []
    sizes = {name: max(len(name), *(_columns(of[name]) for of in rows)) for name in columns}
    if width is not None:
        columns = _fitting(columns, sizes, width)
    header = _line("   ", {name: name for name in columns}, sizes)
    lines = [_with_cause(header, _CAUSE_TITLE, width)]
    for index, (member, of) in enumerate(zip(members, rows, strict=True)):
        cells = _line(_MARKS[member.level], {name: of[name] for name in columns}, sizes)
        text = _with_cause(cells, printable(member.first_cause), width)
        if width is not None:
            text = _padded(text, width)
        shown = paint.chosen(text) if index == chosen else paint.level(member.level, text)
        lines.append(shown if width is not None else shown.rstrip())
    return lines


def _with_cause(cells: str, cause: str, width: int | None) -> str:
    """A line with the cause as far as it fits; it is below the table in full."""
    if width is None:
        return f"{cells}{_GAP}{cause}"
    room = width - _columns(cells) - len(_GAP)
    if room < len(_CAUSE_TITLE):
        return _fit(cells.rstrip(), width)
    return f"{cells}{_GAP}{_fit(cause, room)}"


def _readable(cells: dict[str, str]) -> dict[str, str]:
    return {column: printable(cell.replace("\u2009", " ")) for column, cell in cells.items()}


def _shortened(names: Sequence[str]) -> list[str]:
    """Long names without their middle, as short as they differ."""
    longest = max(map(len, names), default=0)
    for size in range(_LONGEST_NAME, longest):
        half = (size - len(_CUT)) // 2
        found = [of if len(of) <= size else f"{of[:half]}{_CUT}{of[-half:]}" for of in names]
        if len(set(found)) == len(set(names)):
            return found
    return list(names)


def _fitting(columns: list[str], sizes: dict[str, int], width: int) -> list[str]:
    kept = list(columns)
    for name in _DROPPED:
        if len(_MARKS["good"]) + sum(sizes[other] + len(_GAP) for other in kept) + _CAUSE <= width:
            break
        kept.remove(name)
    return kept


def _line(mark: str, cells: dict[str, str], sizes: dict[str, int]) -> str:
    texts = (
        _padded(cell, sizes[name]) if name in _LEFT else cell.rjust(sizes[name])
        for name, cell in cells.items()
    )
    return mark + _GAP.join(texts)


def _details(member: Member, width: int) -> Iterator[str]:
    """The slot's source and all its problems; commands are on lines of their own."""
    about = describe_source(member.record.get("source") or {})
    yield from _folded("", f"{member.slot}: {about or member.state}", width)
    if not member.causes:
        limit: dict[str, Any] = member.record.get("limit") or {}  # Any: JSON
        yield from _folded("  ", f"well. {limit.get('sentence') or ''}", width)
    for of in member.record.get("sources") or ():
        yield from _folded("  ", member_line(of), width)
    for cause in member.causes:
        yield from _folded(
            _MARKS.get(str(cause.get("severity")), "!  "), str(cause.get("what")), width
        )
        sentence, commands = _without_commands(str(cause.get("action")))
        yield from _folded("   ", sentence, width)
        for command in commands:
            yield from _command_lines(command, width)


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


def _command_lines(command: str, width: int) -> Iterator[str]:
    """A command, folded so that it can be copied: a shell goes on after a backslash, SQL after any line."""
    number, _, text = command.partition(") ") if command.startswith("(") else ("", "", command)
    head = f"     {number}) " if number else "     "
    end = "" if text.partition(" ")[0].isupper() else " \\"
    line = ""
    for word in _WORD.findall(printable(text)):
        if line and _columns(f"{head}{line} {word}{end}") > width:
            yield f"{head}{line}{end}"
            head, line = " " * len(head), word
        else:
            line = f"{line} {word}".lstrip()
    yield head + line


def _folded(head: str, text: str, width: int) -> Iterator[str]:
    """Lines of whole words; a word that is longer than a line is parted."""
    room, line = max(width, 20) - len(head), ""
    for whole in printable(text).split():
        word = whole
        while word:
            if _columns(f"{line} {word}".lstrip()) <= room:
                line, word = f"{line} {word}".lstrip(), ""
                continue
            if not line:
                line = _beginning(word, room)
                word = word[len(line) :]
            yield head + line
            head, line = " " * len(head), ""
    yield head + line


def _fit(text: str, width: int) -> str:
    """A text, or its first words and two dots."""
    if _columns(text) <= width:
        return text
    kept = _beginning(text, width - len(_CUT))
    if kept.strip() and not text[len(kept)].isspace():
        kept = kept[: kept.rstrip().rfind(" ") + 1] or kept
    return f"{kept.rstrip()} {_CUT}" if kept.endswith(" ") else kept + _CUT


def _beginning(text: str, width: int) -> str:
    """As much of a text as these columns hold, but one letter at least."""
    used = 0
    for at, letter in enumerate(text):
        used += _columns(letter)
        if used > width:
            return text[: max(1, at)]
    return text


def _padded(text: str, width: int) -> str:
    return text + " " * (width - _columns(text))


def _columns(text: str) -> int:
    """Columns that a terminal needs: two for letters of East Asia, none for accents that follow a letter."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 1 + (unicodedata.east_asian_width(letter) in "WF")
        for letter in text
    )
