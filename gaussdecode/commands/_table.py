"""Prints rows the way psql does."""

from collections.abc import Sequence


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print aligned columns under a header.

    Args:
        columns: their names.
        rows: cells, as many as columns.
    """
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    lines = [
        " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in (columns, *rows)
    ]
    lines.insert(1, "-+-".join("-" * width for width in widths))
    print("\n".join(f" {line.rstrip()}" for line in lines))
