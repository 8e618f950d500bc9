"""Write the result of one bucket's merge: the whole bucket, or only its changes.

If the changes are a small share of a bucket, its files stay: their keys are read, rows that the changes
name are listed in deletion vectors, and new rows are handed on. A second step gathers these, for all
buckets of a table, into one file of added rows, one of deletion vectors and one of closed intervals. So
files and bytes grow with the changes, and not with the table.
"""

import dataclasses
import json
import pickle
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gaussdecode.errors import LandingError
from gaussdecode.spark.log.conversion import conform
from gaussdecode.spark.log.events import KEY, row_keys, state_schema
from gaussdecode.spark.log.place import parquet_file, read_table
from gaussdecode.spark.log.schema import RAW, UNCHANGED, reads_as
from gaussdecode.spark.merge.changelog import split_on
from gaussdecode.spark.merge.merge import merge, merge_delta
from gaussdecode.spark.merge.tasks import GROUP_BITS, Job, from_bytes, read_state, to_bytes
from gaussdecode.spark.target.deletion_vectors import (
    Ints,
    Span,
    ended_rows,
    folded,
    is_current,
    spans,
    write_added,
    write_vectors,
)
from gaussdecode.spark.target.layout import Part as LayoutPart
from gaussdecode.spark.target.state_file import CURRENT, HISTORY, StateFile, write_state

Json = dict[str, Any]  # JSON
_MASK: Final = (1 << GROUP_BITS) - 1


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """Rows of a bucket in one file: the whole file, or a span of an added file."""

    file: StateFile
    span: Span


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """The result of one bucket, on its way to `gather`.

    Attributes:
        bucket: number of the bucket.
        whole: its new file, empty if it has no rows; None if it was not written whole.
        files: other files that it wrote itself because they are large, by kind.
        added: rows to be written with those of other buckets, as an Arrow stream, or None.
        closed: closed intervals, likewise.
        ended: positions of rows that are no longer current, by file path.
        unmatched: see `merge.Merged`.
        read: bytes that were read.
    """

    bucket: int
    whole: tuple[StateFile, ...] | None
    files: tuple[tuple[str, StateFile], ...]
    added: bytes | None
    closed: bytes | None
    ended: Mapping[str, Ints]
    unmatched: int
    read: int


def merge_bucket(
    group: int, payloads: Sequence[bytes], jobs: Sequence[Job]
) -> Iterator[tuple[int, bytes]]:
    """Merge the changes of one bucket; give its `Piece` with the table's number."""
    job, bucket = jobs[group >> GROUP_BITS], group & _MASK
    events = from_bytes(payloads)
    parts = [] if job.is_rebuilt else list(parts_of(job, bucket))
    merged = _merge_delta if _is_small(job, parts, events.num_rows) else _merge_whole
    yield job.index, pickle.dumps(merged(job, bucket, parts, events))


def parts_of(job: Job, bucket: int) -> Iterator[Part]:
    """Find the rows of a bucket."""
    for file in job.base:
        if file.bucket == bucket:
            yield Part(file, (0, file.rows))
        elif file.bucket < 0:
            span = spans(job.table_root / file.path).get(bucket)
            if span is not None:
                yield Part(file, span)


def _is_small(job: Job, parts: Sequence[Part], events: int) -> bool:
    """Whether the changes of a bucket, earlier ones included, are a small share of it."""
    own = [part.file for part in parts if part.file.bucket >= 0]
    if (
        not job.with_vectors
        or not events
        or job.resets
        or sum(file.bytes for file in own) < job.sizes.small_bucket
    ):
        return False
    if not all(reads_as(job.schemas[part.file.schema_id], job.schema) for part in parts):
        return False
    added = sum(part.span[1] - part.span[0] for part in parts if part.file.bucket < 0)
    gone = sum(file.deleted for file in own)
    rows = sum(file.rows for file in own)
    # A changed row is one that is gone and one that was added.
    return max(added, gone) + events <= job.sizes.share * rows


def _merge_delta(job: Job, bucket: int, parts: Sequence[Part], events: pa.Table) -> Piece:
    base, places = _touched(job, parts, events)
    found = merge_delta(base, events, job.schema, job.order, closes=job.with_history)
    of_part, rows = places[0][found.gone], places[1][found.gone]
    ended = {
        part.file.path: rows[of_part == index]
        for index, part in enumerate(parts)
        if (of_part == index).any()
    }
    return _piece(job, bucket, parts, None, found.added, found.closed, ended, found.unmatched)


def _merge_whole(job: Job, bucket: int, parts: Sequence[Part], events: pa.Table) -> Piece:
    base, ended = [], {}
    for part in parts:
        rows, positions = _part_rows(job, part)
        base.append(rows)
        if part.file.bucket < 0:
            ended[part.file.path] = positions
    held = pa.concat_tables(base) if base else None
    merged = merge(held, events, job.resets, job.schema, job.order)
    whole: tuple[StateFile, ...] = ()
    if merged.current.num_rows:
        whole = tuple(
            write_state(
                rows, job.table_root, f"{CURRENT}/{job.token}-{bucket:06d}",
                job.schema.schema_id, bucket, part,
            )
            for part, rows in _laid_out(job, merged.current)
        )  # fmt: skip
    return _piece(job, bucket, parts, whole, None, merged.closed, ended, merged.unmatched)


def _piece(
    job: Job, bucket: int, parts: Sequence[Part], whole: tuple[StateFile, ...] | None,
    added: pa.Table | None, closed: pa.Table, ended: Mapping[str, Ints], unmatched: int,
) -> Piece:  # fmt: skip
    """Describe a bucket's result; large parts are written here, so that `gather` stays within its memory."""
    files, handed = [], {}
    for kind, rows in (("added", added), ("closed", closed if job.with_history else None)):
        if rows is None or not rows.num_rows:
            continue
        if rows.nbytes <= job.sizes.gathered // job.buckets:
            handed[kind] = to_bytes(rows)
            continue
        name, schema_id = f"{job.token}-{kind}-{bucket:06d}", job.schema.schema_id
        if kind == "closed":
            closed_file = write_state(rows, job.table_root, f"{HISTORY}/{name}", schema_id)
            files.append((kind, closed_file))
            continue
        files += [
            (kind, write_state(of, job.table_root, f"{CURRENT}/{name}", schema_id, bucket, part))
            for part, of in _laid_out(job, rows)
        ]
    read = sum(part.file.bytes for part in parts if part.file.bucket >= 0)
    return Piece(
        bucket,
        whole,
        tuple(files),
        handed.get("added"),
        handed.get("closed"),
        ended,
        unmatched,
        read,
    )


def _laid_out(job: Job, rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Split rows by partition, in the table's row order.

    Partition values are in the log only: some readers do not find the deletion vector of a file with
    them in its path.
    """
    if job.cluster:
        rows = rows.take(pc.sort_indices(rows, [(name, "ascending") for name in job.cluster]))
    parts = [LayoutPart.from_text(text) for text in job.partition]
    for by in parts:
        if by.unit:  # Polars takes it from the file alone
            rows = rows.append_column(by.name, by.values(rows))
    found = [("", rows)]
    for by in parts:
        column = urllib.parse.quote(by.name, safe="")
        found = [
            (f"{part}/{column}={value}".strip("/"), of)
            for part, held in found
            for value, of in split_on(held, by.values(held))
        ]
    yield from found


# --- reading --------------------------------------------------------------------------------


def _part_rows(job: Job, part: Part) -> tuple[pa.Table, Ints]:
    """Current rows of a part, in the job's schema, and their positions in the file."""
    if part.file.bucket >= 0:
        rows = read_state(job, part.file)
        return rows, np.empty(0, dtype=np.int64)
    found, positions = [], []
    for rows, at in _row_groups(job, part, None):
        found.append(rows)
        positions.append(at)
    rows = conform(pa.concat_tables(found), job.schemas[part.file.schema_id], job.schema)
    target = state_schema(job.schema)
    return rows.select(target.names).cast(target), np.concatenate(positions)


def _touched(
    job: Job, parts: Sequence[Part], events: pa.Table
) -> tuple[pa.Table, tuple[Ints, Ints]]:
    """Current rows whose keys have events; per row the number of its part and its position."""
    keys = pc.unique(events.column(KEY).combine_chunks())
    wanted = _columns(job, events)
    target = state_schema(job.schema)
    found, of_part, positions = [target.empty_table()], [], []
    for index, part in enumerate(parts):
        for rows, at in _row_groups(job, part, wanted, keys):
            found.append(_padded(rows, target))
            positions.append(at)
            of_part.append(np.full(len(at), index, dtype=np.int64))
    none = np.empty(0, dtype=np.int64)
    places = np.concatenate([none, *of_part]), np.concatenate([none, *positions])
    return pa.concat_tables(found), places


def _columns(job: Job, events: pa.Table) -> list[str] | None:
    """Columns of stored rows that are needed; None for all."""
    if job.with_history or not job.schema.key:
        return None
    unsent = pc.unique(pc.list_flatten(events.column(UNCHANGED).combine_chunks())).to_pylist()
    return list(dict.fromkeys([*job.schema.key, *job.order, UNCHANGED, RAW, *unsent]))


def _row_groups(
    job: Job, part: Part, columns: Sequence[str] | None = None, keys: pa.Array | None = None
) -> Iterator[tuple[pa.Table, Ints]]:
    """Current rows of a part, and their positions in the file, row group by row group.

    Args:
        job: job of the table.
        part: part to read.
        columns: column names; None for all.
        keys: keys of the rows wanted; None for all. In row groups without them only keys are read.
    """
    path = job.table_root / part.file.path
    ended = ended_rows(job.table_root, part.file)
    probe = [*job.schema.key, RAW] if job.schema.key and columns is None else columns
    try:
        with parquet_file(path) as file:
            edge = 0
            for group in range(file.num_row_groups):
                first, edge = edge, edge + file.metadata.row_group(group).num_rows
                start, stop = max(first, part.span[0]), min(edge, part.span[1])
                if start >= stop:
                    continue
                mask = is_current((start, stop), ended)
                if keys is not None:
                    rows = _read(file, group, probe).slice(start - first, stop - start)
                    named = pc.is_in(row_keys(_complete(job, rows), job.schema), value_set=keys)
                    mask &= named.to_numpy(zero_copy_only=False)
                    if not mask.any():
                        continue
                if keys is None or probe is not columns:
                    rows = _read(file, group, columns).slice(start - first, stop - start)
                yield rows.filter(pa.array(mask)), np.flatnonzero(mask) + start
    except (OSError, pa.ArrowException) as error:
        raise LandingError(f"{path} cannot be read: {error}; restore the target") from error


def _read(file: pq.ParquetFile, group: int, columns: Sequence[str] | None) -> pa.Table:
    if columns is None:
        return file.read_row_group(group)
    names = _held(columns, file.schema_arrow.names)
    return file.read_row_group(group, columns=names).select(names)


def _held(columns: Iterable[str], names: Sequence[str]) -> list[str]:
    there = set(names)
    return [name for name in columns if name in there]


def _complete(job: Job, rows: pa.Table) -> pa.Table:
    """Add key columns that an old file lacks."""
    for field in job.schema.arrow():
        if (
            field.name in (job.schema.key or job.schema.names)
            and field.name not in rows.column_names
        ):
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows


def _padded(rows: pa.Table, target: pa.Schema) -> pa.Table:
    """Rows in the schema of the state, NULL in columns that were not read."""
    there = set(rows.column_names)
    arrays = [
        rows.column(field.name).cast(field.type) if field.name in there
        else pa.nulls(rows.num_rows, field.type)
        for field in target
    ]  # fmt: skip
    return pa.table(arrays, schema=target)


# --- gathering ------------------------------------------------------------------------------


def gather(index: int, payloads: Sequence[bytes], jobs: Sequence[Job]) -> list[str]:
    """Write the pieces of all buckets of a table into few files.

    Returns:
        One JSON text for `replaced`.
    """
    job, root = jobs[index], jobs[index].table_root
    loaded: list[Piece] = [pickle.loads(p) for p in payloads]  # noqa: S301 - of our own tasks
    pieces = sorted(loaded, key=lambda piece: piece.bucket)
    files = [pair for piece in pieces for pair in piece.files]
    closed = [from_bytes([piece.closed]) for piece in pieces if piece.closed is not None]
    if closed:
        rows = pa.concat_tables(closed)
        name = f"{HISTORY}/{job.token}-closed"
        files.append(("closed", write_state(rows, root, name, job.schema.schema_id)))
    ended = _vectors(job, pieces)
    added = {p.bucket: from_bytes([p.added]) for p in pieces if p.added is not None}
    gone = {f.path for f in job.base if f.path in ended and len(ended[f.path]) == f.rows}
    if added:
        fold = _chosen(job, ended, gone, sum(len(p.added) for p in pieces if p.added is not None))
        rows_by_bucket = _with_folded(job, fold, ended, added)
        gone |= {file.path for file in fold}
        divided: dict[str, dict[int, pa.Table]] = {}
        for bucket, rows in rows_by_bucket.items():
            for part, of in _laid_out(job, rows):
                divided.setdefault(part, {})[bucket] = of
        files += [
            (
                "added",
                write_added(root, f"{CURRENT}/{job.token}-added", job.schema.schema_id, of, p),
            )
            for p, of in divided.items()
        ]
    left = {path: rows for path, rows in ended.items() if path not in gone}
    deletes, size = write_vectors(root, f"{CURRENT}/{job.token}", left) if left else ({}, 0)
    result = {
        "table": index,
        "whole": {p.bucket: list(map(dataclasses.asdict, p.whole))
                  for p in pieces if p.whole is not None},
        "files": [[kind, dataclasses.asdict(file)] for kind, file in files],
        "gone": sorted(gone),
        "deletes": {path: str(vector) for path, vector in deletes.items()},
        "deleted": {path: len(rows) for path, rows in left.items()},
        "unmatched": sum(piece.unmatched for piece in pieces),
        "read": sum(piece.read for piece in pieces),
        "written": size,
    }  # fmt: skip
    return [json.dumps(result)]


def _vectors(job: Job, pieces: Sequence[Piece]) -> dict[str, Ints]:
    """Complete deletion vectors, old and new positions, of files that got new ones."""
    base = {file.path: file for file in job.base}
    new: dict[str, list[Ints]] = {}
    for piece in pieces:
        for path, rows in piece.ended.items():
            new.setdefault(path, []).append(rows)
    root = job.table_root
    found = {p: np.unique(np.concatenate([ended_rows(root, base[p]), *r])) for p, r in new.items()}
    return {path: rows for path, rows in found.items() if len(rows)}


def _chosen(job: Job, ended: Mapping[str, Ints], gone: set[str], size: int) -> list[StateFile]:
    """Added files to rewrite together with the new rows."""
    held = {f.path: f for f in job.base if f.bucket < 0 and f.path not in gone}
    weights = (
        (path, file.bytes * (file.rows - len(ended.get(path, ())) or 1) // file.rows)
        for path, file in held.items()
    )
    return [held[path] for path in folded(weights, size, job.sizes.added)]


def _with_folded(
    job: Job, files: Sequence[StateFile], ended: Mapping[str, Ints], added: Mapping[int, pa.Table]
) -> dict[int, pa.Table]:
    """Rows by bucket: those of older added files and the new ones."""
    found: dict[int, list[pa.Table]] = {bucket: [rows] for bucket, rows in added.items()}
    root, target = job.table_root, state_schema(job.schema)
    for file in files:
        path = root / file.path
        rows = _padded(read_table(path), target)
        mask = is_current((0, file.rows), ended.get(file.path, ended_rows(root, file)))
        for bucket, (start, stop) in spans(path).items():
            held = rows.slice(start, stop - start).filter(pa.array(mask[start:stop]))
            if held.num_rows:
                found.setdefault(bucket, []).append(held)
    return {bucket: pa.concat_tables(parts) for bucket, parts in found.items()}


def replaced(current: Sequence[StateFile], result: Json) -> list[StateFile]:
    """The files of the current state after a pass.

    Args:
        current: files before the pass.
        result: result of `gather`.
    """
    whole = {int(bucket): files for bucket, files in result["whole"].items()}
    gone, deleted = set(result["gone"]), result["deleted"]
    kept = [
        dataclasses.replace(file, deletes=result["deletes"][file.path], deleted=deleted[file.path])
        if file.path in deleted
        else file
        for file in current
        if file.bucket not in whole and file.path not in gone
    ]
    kept += [StateFile(**record) for files in whole.values() for record in files]
    return kept + [StateFile(**record) for kind, record in result["files"] if kind == "added"]
