"""Write the parts that all pages share: the document frame, tables, and sentences with commands.

Every text is escaped here. Nothing is loaded from anywhere else, see `_assets.CONTENT_POLICY`.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final
from urllib.parse import quote

from gaussdecode.daemon.status._assets import SCRIPT, STYLE

_COLOURS: Final = {"good": "#1a7f37", "note": "#566170", "warning": "#b35900", "error": "#c9252d"}
_ICON: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">'
    '<circle cx="8" cy="8" r="7" fill="{}"/></svg>'
)


def document(title: str, main: str, level: str, *, is_live: bool = True) -> bytes:
    """Write a page.

    Args:
        title: text.
        main: HTML of its sections.
        level: how bad it is: good, note, warning or error; the colour of its icon.
        is_live: it is loaded again and again.
    """
    icon = quote(_ICON.format(_COLOURS[level]))
    again = '<noscript><meta http-equiv="refresh" content="5"></noscript>' if is_live else ""
    notes = (
        '<div id="stale" role="alert">No answer from the daemon; these are its last figures.</div>'
        '<p id="said" role="status"></p>'
    )
    script = f"<script>{SCRIPT}</script>" if is_live else ""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(title)}</title>"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:image/svg+xml,{icon}">{again}'
        f"<style>{STYLE}</style></head>\n<body>{notes if is_live else ''}"
        f"<main>\n{main}</main>\n{script}</body></html>\n"
    ).encode()


def chip(text: str, level: str) -> str:
    """A state in its colour."""
    return f'<span class="state {level}">{escape(text)}</span>'


def scrolled(name: str, label: str, table: str) -> str:
    """A table in a box that scrolls by itself; the keyboard reaches it."""
    return (
        f'<div class="scroll" id="box-{name}" role="region" tabindex="0" aria-label="{escape(label)}">'
        f"{table}</div>"
    )


def table_of(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, kind: str = "", is_html: bool = False
) -> str:
    """A table whose first column names the rows.

    Args:
        header: names of the columns; none for a table of facts.
        rows: cells.
        kind: its class.
        is_html: the cells are HTML, not text.
    """
    spell = str if is_html else escape
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in header)
    body = "".join(
        f'<tr><th scope="row">{spell(first)}</th>{"".join(f"<td>{spell(cell)}</td>" for cell in rest)}</tr>'
        for first, *rest in rows
    )
    return (
        f"<table{f' class={kind}' if kind else ''}>{f'<thead><tr>{head}</tr></thead>' if head else ''}"
        f"<tbody>{body}</tbody></table>"
    )


def line_of(points: Sequence[tuple[float, float]], width: float, height: float) -> str:
    """The line of a chart and the area below it, as paths of an SVG; broken where nothing is known.

    Args:
        points: seconds ago and value, oldest first; NaN where it is not known.
        width: width of the drawing.
        height: height of the drawing.
    """
    scale = max((value for _, value in points if not math.isnan(value)), default=0.0) or 1.0
    length = max((ago for ago, _ in points), default=0.0) or 1.0
    shapes = []
    for is_gap, part in itertools.groupby(points, lambda point: math.isnan(point[1])):
        if is_gap:
            continue
        places = [
            (width * (1 - ago / length), height - 2 - (height - 8) * value / scale)
            for ago, value in part
        ]
        line = "M" + " L".join(f"{x:.1f},{y:.1f}" for x, y in places)
        below = f"L{places[-1][0]:.1f},{height} L{places[0][0]:.1f},{height} Z"
        shapes.append(f'<path class="area" d="{line} {below}"/><path d="{line}"/>')
    return "".join(shapes)


def with_commands(sentence: str, name: str) -> str:
    """A sentence whose commands, which stand between backticks, can be copied.

    Args:
        sentence: text.
        name: prefix of the buttons' ids; unique on the page.
    """
    return "".join(_with_commands(sentence, name))


def _with_commands(sentence: str, name: str) -> Iterator[str]:
    for number, part in enumerate(sentence.split("`")):
        if number % 2 == 0:
            yield escape(part)
        else:
            text = escape(part)
            yield (
                f'<code>{text}</code><button type="button" class="copy" id="copy-{name}-{number}" '
                f'aria-label="Copy {text}">Copy</button>'
            )
