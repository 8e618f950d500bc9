"""Rows of files that never change: which of them are still current, and whose they are.

The current state is *base files*, of one bucket each, and *added files*, whose rows are of many
buckets and sorted by them. Either may have a *delete vector*: the positions of its rows that are
no longer current. The vectors of many files are one Parquet file with columns ``file`` (a name
without directory) and ``row``; a file names the one that has its whole vector. The spans of
buckets in an added file stand in its footer.
"""

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gaussdecode.errors import LandingError
from gaussdecode.spark.place import Place, parquet_file, read_table
from gaussdecode.spark.store import StateFile, write_parquet

Ints = npt.NDArray[np.int64]
Span = tuple[int, int]
SCHEMA: Final = pa.schema([("file", pa.string()), ("row", pa.int64())])
_SPANS: Final = b"gaussdecode.buckets"
_ROW_GROUP: Final = 16_384
"""Rows of an added file that are read together; a bucket has few of them."""


def ended_rows(root: Place, file: StateFile) -> Ints:
    """The delete vector of a file, sorted.

    Raises:
        LandingError: its file is missing or damaged.
    """
    if not file.deletes:
        return np.empty(0, dtype=np.int64)
    path = root / file.deletes
    try:
        found = rows_named(path, PurePosixPath(file.path).name)
    except (OSError, pa.ArrowException) as error:
        raise LandingError(f"{path} cannot be read: {error}; restore the target") from error
    if len(found) != file.deleted:
        raise LandingError(
            f"{path} has {len(found)} rows of {file.path}, not {file.deleted}; restore the target"
        )
    return found


def rows_named(path: Place, name: str) -> Ints:
    """The rows that a file of delete vectors has for another file, sorted."""
    rows = read_table(path, ["row"], [("file", "=", name)])
    return np.unique(rows.column("row").to_numpy())


def write_vectors(root: Place, name: str, vectors: Mapping[str, Ints]) -> tuple[str, int]:
    """Write the vectors of files, by path; give the path and the size of the new file."""
    paths = sorted(vectors)
    counts = [len(vectors[path]) for path in paths]
    names = pa.array([PurePosixPath(path).name for path in paths], pa.string())
    files = names.take(pa.array(np.repeat(np.arange(len(paths)), counts)))
    rows = np.concatenate([vectors[path] for path in paths])
    return write_parquet(pa.table([files, pa.array(rows)], schema=SCHEMA), root, name)


def is_current(span: Span, ended: Ints) -> npt.NDArray[np.bool_]:
    """Which rows of a span of positions are not in a delete vector."""
    start, stop = span
    result = np.ones(stop - start, dtype=np.bool_)
    low, high = np.searchsorted(ended, [start, stop])
    result[ended[low:high] - start] = False
    return result


def current_rows(root: Place, file: StateFile, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of a file that are current.

    Raises:
        LandingError: the file is missing or damaged.
    """
    path = root / file.path
    try:
        rows = read_table(path, columns)
    except (OSError, pa.ArrowException) as error:
        raise LandingError(f"{path} cannot be read: {error}; restore the target") from error
    if not file.deletes:
        return rows
    return rows.filter(pa.array(is_current((0, rows.num_rows), ended_rows(root, file))))


def write_added(root: Place, name: str, parts: Mapping[int, pa.Table]) -> tuple[str, int, int]:
    """Write rows by bucket into one file; give its path, rows and size."""
    buckets = sorted(parts)
    edges = np.cumsum([0, *(parts[bucket].num_rows for bucket in buckets)]).tolist()
    spans = [[b, edges[i], edges[i + 1]] for i, b in enumerate(buckets)]
    rows = pa.concat_tables([parts[bucket] for bucket in buckets])
    rows = rows.replace_schema_metadata({_SPANS: json.dumps(spans, separators=(",", ":"))})
    path, size = write_parquet(rows, root, name, group_rows=_ROW_GROUP)
    return path, rows.num_rows, size


@functools.lru_cache(maxsize=4096)
def spans(path: Place) -> dict[int, Span]:
    """Where the rows of buckets are in an added file, by bucket.

    Raises:
        LandingError: the file is missing or damaged.
    """
    try:
        found = json.loads(parquet_file(path).metadata.metadata[_SPANS])
        return {bucket: (start, stop) for bucket, start, stop in found}
    except (OSError, KeyError, TypeError, ValueError, pa.ArrowException) as error:
        raise LandingError(f"{path} cannot be read: {error}; restore the target") from error


def folded(files: Iterable[tuple[str, int]], size: int, most: int) -> list[str]:
    """Choose which added files to write anew together with new rows.

    The newest ones, while each is at most twice as large as all that is younger: so sizes double
    from file to file, there are few of them, and a row is written a few times only.

    Args:
        files: paths and sizes, oldest first.
        size: of what is new.
        most: sum of sizes that is not exceeded.
    """
    chosen: list[str] = []
    for path, held in reversed(list(files)):
        if held > 2 * size or size + held > most:
            break
        chosen.append(path)
        size += held
    return chosen
