"""Render the runbooks of docs/alerts.md as a page, for operators who reach nothing but the daemon.

Knows as much of Markdown as that page uses: headings, paragraphs, tables, code, emphasis, links.
A link to another page of the documentation is left as its text, and names the page.
"""

import functools
import re
from collections.abc import Iterator
from html import escape
from importlib.resources import files
from typing import Final

from gaussdecode.daemon.status.html import document, scrolled

_BLOCKS: Final = re.compile(r"\n\s*\n")
_HEADING: Final = re.compile(r"(#{1,3}) (.+)")
_INLINE: Final = re.compile(r"`([^`]+)`|\[([^\]]+)\]\(([^)\s]+)\)|\*([^*]+)\*")


@functools.cache
def render_guide() -> bytes:
    """Write the page."""
    text = files("gaussdecode.daemon.status").joinpath("alerts.md").read_text(encoding="utf-8")
    body = "".join(_blocks(text))
    return document(
        "Alerts and runbooks", f'<section class="guide">{body}</section>', "note", is_live=False
    )


def _blocks(text: str) -> Iterator[str]:
    title = ""
    for block in _BLOCKS.split(text.strip()):
        lines = block.splitlines()
        heading = _HEADING.fullmatch(block)
        if heading is not None:
            level, title = len(heading[1]), heading[2]
            yield f'<h{level} id="{escape(_anchor(title))}">{_inline(title)}</h{level}>'
        elif lines[0].startswith("|"):
            yield scrolled(_anchor(title), f"Table of {title}", _table(lines))
        else:
            yield f"<p>{_inline(' '.join(lines))}</p>"


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9-]", "", title.lower().replace(" ", "-"))


def _table(lines: list[str]) -> str:
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    names = "".join(f'<th scope="col">{_inline(cell)}</th>' for cell in head)
    body = "".join(
        f'<tr><th scope="row">{_inline(first)}</th>{"".join(f"<td>{_inline(cell)}</td>" for cell in rest)}</tr>'
        for first, *rest in rows
    )
    return f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"


def _inline(text: str) -> str:
    parts, end = [], 0
    for found in _INLINE.finditer(text):
        parts += [escape(text[end : found.start()]), _span(found)]
        end = found.end()
    return "".join([*parts, escape(text[end:])])


def _span(found: re.Match[str]) -> str:
    code, label, target, emphasis = found.groups()
    if code is not None:
        return f"<code>{escape(code)}</code>"
    if label is None:
        return f"<em>{escape(emphasis)}</em>"
    if target.startswith("#"):
        return f'<a href="{escape(target)}">{escape(label)}</a>'
    return f"{escape(label)} (docs/{escape(target.partition('#')[0])})"
