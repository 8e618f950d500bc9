"""Look up single rows of landed files, for a plan that does not read the files.

Given a Parquet file; promises to open only row groups that the statistics do not rule out, to read only
the columns asked for, and to make Python objects only of the rows it returns.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gaussdecode.errors import LandingError
from gaussdecode.spark.log.events import as_int64
from gaussdecode.spark.log.place import Place, parquet_file

Row = dict[str, Any]  # Any: values of a landed row
_LOWEST: Final = -(1 << 63)


def first_row(path: Place, order: Sequence[str], names: Sequence[str]) -> Row:
    """The first row of a file in an order.

    Args:
        path: a file that has rows.
        order: integer columns; NULL counts as 0.
        names: columns to return.

    Raises:
        LandingError: the file is missing, damaged or empty.
    """
    with _opened(path) as file:
        bounds = sorted((_bound(file, g, order), g) for g in range(file.num_row_groups))
        best: tuple[tuple[int, ...], int, int] | None = None
        for bound, group in bounds:
            if best is not None and bound > best[0]:
                break
            rows = file.read_row_group(group, columns=list(order))
            columns = [as_int64(rows.column(name)) for name in order]
            if rows.num_rows:
                at = int(_first_index(columns))
                found = (tuple(int(column[at]) for column in columns), group, at)
                best = found if best is None else min(best, found)
        if best is None:
            raise LandingError(f"{path} has no rows; restore it from a copy of this landing")
        rows = file.read_row_group(best[1], columns=list(names))
        return dict(rows.slice(best[2], 1).to_pylist()[0])


def rows_of_op(path: Place, op: str, names: Sequence[str]) -> list[Row]:
    """All rows with one operation, in file order.

    Args:
        path: the file.
        op: value of ``gd_op``.
        names: columns to return.

    Raises:
        LandingError: the file is missing or damaged.
    """
    found: list[Row] = []
    with _opened(path) as file:
        for group in range(file.num_row_groups):
            ops = file.read_row_group(group, columns=["gd_op"]).column("gd_op")
            wanted = pc.indices_nonzero(pc.equal(ops, op))
            if len(wanted):
                found += file.read_row_group(group, columns=list(names)).take(wanted).to_pylist()
    return found


def csns_of(path: Place) -> tuple[int | None, int | None]:
    """Least and greatest CSN of the rows of a file; None where it has none.

    Raises:
        LandingError: the file is missing or damaged.
    """
    with _opened(path) as file:
        both = pc.min_max(file.read(columns=["gd_csn"]).column(0)).as_py()
    return both["min"], both["max"]


@contextlib.contextmanager
def _opened(path: Place) -> Iterator[pq.ParquetFile]:
    try:
        with parquet_file(path) as file:
            yield file
    except (OSError, pa.ArrowException) as error:
        raise LandingError(f"{path} cannot be read: {error}; is the landing complete?") from error


def _bound(file: pq.ParquetFile, group: int, order: Sequence[str]) -> tuple[int, ...]:
    """Lower bound of a row group in the order."""
    facts = file.metadata.row_group(group)
    by_name = {facts.column(i).path_in_schema: i for i in range(facts.num_columns)}
    return tuple(
        _least(facts.column(by_name[name]).statistics) if name in by_name else 0 for name in order
    )


def _least(statistics: Any) -> int:  # Any: pyarrow's, or None
    if statistics is None or statistics.null_count is None:
        return _LOWEST
    lowest = int(statistics.min) if statistics.has_min_max else None
    if lowest is None:  # only NULL, or nothing is known
        return 0 if statistics.num_values == 0 else _LOWEST
    return min(lowest, 0) if statistics.null_count else lowest


def _first_index(columns: Sequence[np.ndarray[Any, np.dtype[np.int64]]]) -> int:
    """Index of the smallest tuple of columns."""
    left = np.arange(len(columns[0]))
    for column in columns:
        values = column[left]
        left = left[values == values.min()]
    return int(left[0])
