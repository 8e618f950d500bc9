"""Show progress on a terminal, or line by line without one."""

import os
import sys
import time
from collections.abc import Sequence
from typing import Final, TextIO

from gaussdecode.logs import takes_color

_PLAIN_SECONDS: Final = 2.0
_CLEAR: Final = "\r\x1b[K"
_COLUMNS: Final = 80  # of a terminal that does not say


class Display:
    """Prints headings, facts, a live line and tables.

    Args:
        out: standard output, or what a test gives.
    """

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._is_terminal = self._out.isatty()
        self._is_bold = takes_color(self._out, os.environ)
        self._live = False
        self._next_plain = 0.0

    def step(self, text: str) -> None:
        """Print the next step."""
        self._end_live()
        mark = "\x1b[1m==>\x1b[0m" if self._is_bold else "==>"
        print(f"{mark} {text}", file=self._out, flush=True)

    def fact(self, text: str) -> None:
        """Print a detail of the step."""
        self._end_live()
        print(f"    {text}", file=self._out, flush=True)

    def live(self, *parts: str, is_last: bool = False) -> None:
        """Print progress: on a terminal in one line, of which it leaves out the last parts that do not fit.

        Without a terminal it prints a line with all parts every other second.
        """
        now = time.monotonic()
        if self._is_terminal:
            print(f"{_CLEAR}{self._fitting(parts)}", end="", file=self._out, flush=True)
            self._live = True
        elif is_last or now >= self._next_plain:
            self._next_plain = now + _PLAIN_SECONDS
            print(f"    {'  '.join(parts)}", file=self._out, flush=True)

    def _fitting(self, parts: Sequence[str]) -> str:
        """The line, narrower than the terminal is now: what reaches its edge would wrap."""
        columns = os.get_terminal_size(self._out.fileno()).columns or _COLUMNS
        text = f"    {parts[0]}"
        for part in parts[1:]:
            if len(text) + len(part) + 2 >= columns:
                break
            text += f"  {part}"
        return text[: columns - 1]

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print columns: the first left-aligned, the others right-aligned."""
        self._end_live()
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        for row in (head, *rows):
            cells = [
                cell.ljust(width) if index == 0 else cell.rjust(width)
                for index, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            print("    " + "  ".join(cells).rstrip(), file=self._out, flush=True)

    def _end_live(self) -> None:
        if self._live:
            print(file=self._out)
            self._live = False


def grouped(number: float) -> str:
    """Write a whole number with thin groups: ``12 345``."""
    return f"{int(number):,}".replace(",", " ")


def size(number: float) -> str:
    """Format a number of bytes for people."""
    for unit in ("B", "kB", "MB"):
        if abs(number) < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"
