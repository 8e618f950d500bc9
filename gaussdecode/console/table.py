"""Print rows like psql, at most as wide as the terminal."""

import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

from gaussdecode.model.words import printable

_NARROWEST: Final = 16  # of a cell that is folded; arbitrary


def terminal_width() -> int | None:
    """Columns of the terminal that standard output goes to; None for a file or a pipe.

    Output to a file is not folded, so that a line can be searched for.
    """
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table_lines(
    columns: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None
) -> Iterator[str]:
    """Align columns under a header.

    Args:
        columns: column names.
        rows: rows of as many cells as columns.
        width: width of the terminal, to which cells of the widest column are folded; None to fold
            none.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    if width is not None:
        widest = max(range(len(widths)), key=widths.__getitem__)
        others = sum(widths) - widths[widest] + 3 * (len(widths) - 1) + 1
        widths[widest] = min(widths[widest], max(width - others, _NARROWEST, len(columns[widest])))
    yield from _row_lines(columns, widths)
    yield " " + "-+-".join("-" * size for size in widths)
    for row in rows:
        yield from _row_lines(row, widths)


def _row_lines(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    """Lines of one row: more than one where a cell is folded."""
    cells = [
        textwrap.wrap(cell, size) if len(cell) > size else [cell]
        for cell, size in zip(row, widths, strict=True)
    ]
    for number in range(max(map(len, cells))):
        parts = [cell[number] if number < len(cell) else "" for cell in cells]
        line = " | ".join(part.ljust(size) for part, size in zip(parts, widths, strict=True))
        yield f" {line.rstrip()}"


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print aligned columns under a header.

    Args:
        columns: column names.
        rows: rows of as many cells as columns.
    """
    print("\n".join(table_lines(columns, rows, terminal_width())))
