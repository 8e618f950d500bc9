"""Merge many small files into few, without moving any position.

Given a complete block of entries, makes a ``compact`` entry. Its files, under ``compact/``, hold exactly the
rows of the files that they replace, in the order of the landing, and each has rows of one source. The old
files stay until retention removes them, because plain streams read their directories; only readers of the
log use the merged ones. Memory is bounded by a few row groups.

`landing.compact` is off by default. Merged files serve readers of the commit log only and the small files
stay until retention, so merging doubles the disk space.
"""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Final

import pyarrow as pa

from gaussdecode.errors import DiskError, LandingError
from gaussdecode.host import lazy_pyarrow
from gaussdecode.land.commitlog import ORDER_CSN, CommitLog
from gaussdecode.land.entry_steps import Draft
from gaussdecode.land.names import compact_directory
from gaussdecode.land.parquet import ParquetSink
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import EntryKind, LandingFile, Replacement

MIB: Final = 1 << 20
_ROWS: Final = 128 * 1024
_BYTES: Final = 64 * MIB
_MAX_FILES: Final = 100_000
"""Files looked at in one go; arbitrary, it bounds memory and the size of the entry."""

_MAX_MERGED: Final = 256
"""Files merged into one: all of them are open at once."""

_ORDER: Final = {
    "lsn": ("gd_epoch", "gd_lsn", "gd_seq"),
    "csn": ("gd_epoch", "gd_csn", "gd_lsn", "gd_seq"),
}
"""Columns that order the rows of one source, by the order of the landing."""

_KINDS: Final = frozenset({EntryKind.DATA})


@dataclasses.dataclass(frozen=True, slots=True)
class Small:
    """A small file and the number of the entry that names it."""

    n: int
    file: LandingFile


def compact(
    log: CommitLog,
    *,
    target_bytes: int = 128 * MIB,
    small_bytes: int = 32 * MIB,
    compression: str = "zstd",
    should_stop: Callable[[], bool] = lambda: False,
) -> CommitEntry | None:
    """Merge the small files of the next block of entries.

    Call it from a thread of its own; only committing the entry at its end holds up the writer.

    Args:
        log: open.
        target_bytes: a merged file becomes about this big at most.
        small_bytes: larger files are left alone.
        compression: compression of the merged files.
        should_stop: asked between two files; true gives up what was merged so far.

    Returns:
        The ``compact`` entry, whose ``extra["skipped"]`` says what was left alone because it
        is damaged (that must not stop what lands now); None when the block is not complete yet or a stop was asked for.
    """
    first = max(log.compacted, log.floor + 1, log.mirrored_only_until + 1)
    block = first - first % log.block
    if block + log.block > log.next_n:
        return None
    smalls, through = collect_small(log.iterate(first, block + log.block - 1), small_bytes)
    files: list[LandingFile] = []
    replaced: dict[str, Replacement] = {}
    skipped: list[str] = []
    for group in plan_groups(smalls, target_bytes):
        if should_stop():
            _abandon(log, files)
            return None
        try:
            merged = merge(log, block, [small.file for small in group], compression)
        except DiskError:
            raise
        except LandingError as error:
            skipped.append(str(error))
            continue
        files.append(merged)
        numbers = [small.n for small in group]
        paths = tuple(small.file.path for small in group)
        replaced[merged.path] = Replacement("", paths, min(numbers), max(numbers))
    return log.commit(
        Draft(
            kind=EntryKind.COMPACT,
            files=tuple(files),
            replaced=replaced,
            extra={"first": first, "through": through, "skipped": skipped},
        )
    )


def collect_small(entries: Iterable[CommitEntry], small_bytes: int) -> tuple[list[Small], int]:
    """List the small files; large ones are kept as separators without being merged.

    Returns:
        Files in order of their entries, and the last entry number looked at.
    """
    found: list[Small] = []
    through = 0
    for entry in entries:
        through = entry.n
        if entry.kind in _KINDS:
            found += [Small(entry.n, file) for file in entry.files]
        if len(found) >= _MAX_FILES:
            break
    return [small for small in found if small.file.bytes < small_bytes], through


def plan_groups(smalls: list[Small], target_bytes: int) -> Iterator[list[Small]]:
    """Choose what is merged: runs of one table, source and schema, in the order of their entries. Pure."""

    def order(small: Small) -> tuple[str, str]:
        return small.file.table, small.file.source or ""

    def kind(small: Small) -> tuple[str, str | None, str]:
        return small.file.table, small.file.source, small.file.schema_id

    for _, run in itertools.groupby(sorted(smalls, key=order), key=kind):
        group: list[Small] = []
        size = 0
        for small in run:
            if group and (size + small.file.bytes > target_bytes or len(group) == _MAX_MERGED):
                if len(group) > 1:
                    yield group
                group, size = [], 0
            group.append(small)
            size += small.file.bytes
        if len(group) > 1:
            yield group


def merge(log: CommitLog, block: int, files: list[LandingFile], compression: str) -> LandingFile:
    """Write the rows of several files into one hidden file.

    Raises:
        LandingError: a file is missing, damaged, or of another schema than its schema_id.
    """
    table = files[0].table
    directory = compact_directory(block, table)
    path = log.disk.unfinished(directory, log.next_n, "parquet")
    sink: ParquetSink | None = None
    try:
        with ExitStack() as stack:
            opened = [
                lazy_pyarrow.pq.ParquetFile(stack.enter_context(log.disk.files.open(file.path)))
                for file in files
            ]
            schema = joint_schema([file.schema_arrow for file in opened])
            for rows in _batched(_row_groups(opened, _ORDER[log.layout.order]), schema):
                if sink is None:
                    sink = ParquetSink(log.disk, path, schema, compression, rows)
                sink.write(rows)
        if sink is None or sink.rows != sum(file.rows for file in files):
            raise LandingError(f"{files[0].path} and others hold other rows than their entries say")
        return _described(sink, files, log.layout.order)
    except (OSError, pa.ArrowException, ValueError, LandingError) as error:
        if sink is not None:
            sink.abandon()
            log.disk.remove(path)
        if isinstance(error, LandingError):
            raise
        raise LandingError(f"{files[0].path} and others cannot be merged: {error}") from error


def joint_schema(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """Schema of a file with the rows of several: a later version may have more of our own columns.

    Raises:
        ValueError: the table's own columns differ.
    """
    joint = pa.unify_schemas(sorted(schemas, key=len, reverse=True))
    for schema in schemas:
        missing = sorted(set(joint.names) - set(schema.names))
        if any(not name.startswith("gd_") for name in missing):
            raise ValueError(f"their columns differ: {', '.join(missing)} is not in all of them")
    return joint


def _described(sink: ParquetSink, files: list[LandingFile], order: str) -> LandingFile:
    first, last = files[0].first, files[-1].last  # in the order of CSNs, positions may fall
    if order != ORDER_CSN:  # files of early versions may overlap
        first, last = min(file.first for file in files), max(file.last for file in files)
    size, checksum = sink.finish()
    ops: Counter[str] = Counter()
    for file in files:
        ops.update(file.ops)
    return LandingFile(
        path=sink.path,
        table=files[0].table,
        rows=sink.rows,
        bytes=size,
        first=first,
        last=last,
        schema_id=files[0].schema_id,
        ops=dict(sorted(ops.items())),
        has_unchanged=any(file.has_unchanged for file in files),
        has_key_change=any(file.has_key_change for file in files),
        checksum=checksum,
        source=files[0].source,
    )


def _row_groups(files: list[Any], order: Sequence[str]) -> Iterator[pa.Table]:
    """Row groups of all files in the order of the landing; those of lanes interleave."""
    keyed = []
    for index, file in enumerate(files):
        columns = [name for name in order if name in file.schema_arrow.names]
        for group in range(file.num_row_groups):
            head = file.read_row_group(group, columns=columns).slice(0, 1).to_pylist()
            if head:
                key = tuple(head[0][name] or 0 for name in columns)
                keyed.append((key, index, group))
    for _, index, group in sorted(keyed):
        yield files[index].read_row_group(group)


def _batched(tables: Iterator[pa.Table], schema: pa.Schema) -> Iterator[pa.Table]:
    """Join small row groups into larger ones, all of one schema."""
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        rows = sum(one.num_rows for one in waiting)
        if rows >= _ROWS or sum(one.nbytes for one in waiting) >= _BYTES:
            yield _joined(waiting, schema)
            waiting = []
    if waiting:
        yield _joined(waiting, schema)


def _joined(tables: list[pa.Table], schema: pa.Schema) -> pa.Table:
    """One table of several; a column that one does not have is NULL in its rows."""
    whole = pa.concat_tables([schema.empty_table(), *tables], promote_options="default")
    return whole.combine_chunks()


def _abandon(log: CommitLog, files: list[LandingFile]) -> None:
    for file in files:
        try:
            log.disk.remove(file.path)
        except DiskError:
            return  # the next start sweeps them
