"""Tasks on an executor: read files into events of buckets, follow moved keys.

Given descriptions that pickle; between the map and the merge travel a group number and
bytes (events as an Arrow stream), so that no value is converted on the way. Needs pyarrow
and this package on the executor, no pyspark.
"""

import collections
import dataclasses
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gaussdecode.errors import LandingError
from gaussdecode.spark.log.change_file import ChangeFile, in_window
from gaussdecode.spark.log.conversion import conform
from gaussdecode.spark.log.events import (
    KEY,
    Reset,
    as_int64,
    base_events,
    event_schema,
    row_keys,
    state_schema,
    to_events,
)
from gaussdecode.spark.log.keys import buckets_of
from gaussdecode.spark.log.place import Place, parquet_file
from gaussdecode.spark.log.schema import SOURCE, TableSchema
from gaussdecode.spark.merge import key_changes
from gaussdecode.spark.merge.sizing import Sizes, shared_out
from gaussdecode.spark.target.deletion_vectors import current_rows
from gaussdecode.spark.target.durable import write_file
from gaussdecode.spark.target.state_file import CURRENT, QUARANTINE, StateFile

GROUP_BITS: Final = 20
"""Buckets are below 2**20; the rest of a group number is the table's."""

_MOVES: Final = 1024
"""Groups over which tied keys are spread; arbitrary."""

_KEY_BYTES: Final = 4096
"""What the events of a tied key are taken to have; arbitrary."""

Involved = Mapping[bytes, int]


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """One table in one pass.

    Attributes:
        index: number of the table in the pass.
        table_root: its directory in the target.
        schema: version its rows will have.
        schemas: versions of the files that are read, by id.
        order: columns that order changes.
        resets: in order.
        buckets: to spread rows over.
        base: files of the current state.
        beside: files of rows in quarantine, which come as events.
        is_rebuilt: the current state is spread anew, so it comes as events.
        with_history: keep what ended.
        with_vectors: files may stay where few of their rows are no longer current.
        token: of this run, in the names of its files.
        partition: columns whose values divide files.
        cluster: columns that rows of a file are sorted by.
        sizes: what is written whole, and what is gathered.
    """

    index: int
    table_root: Place
    schema: TableSchema
    schemas: dict[str, TableSchema]
    order: tuple[str, ...]
    resets: tuple[Reset, ...]
    buckets: int
    base: tuple[StateFile, ...]
    beside: tuple[StateFile, ...]
    is_rebuilt: bool
    with_history: bool
    with_vectors: bool
    token: str
    partition: tuple[str, ...] = ()
    cluster: tuple[str, ...] = ()
    sizes: Sizes = dataclasses.field(default_factory=Sizes)

    def group(self, bucket: int) -> int:
        """Number of one bucket of this table."""
        return self.index << GROUP_BITS | bucket


@dataclasses.dataclass(frozen=True, slots=True)
class MapTask:
    """Something to read: one of the three kinds of files.

    Attributes:
        job: the table's.
        root: of the landing.
        changes: landed files.
        base: files of the current state that come as events.
        resolved: files of events, of `resolve_group`, below the table's directory.
        forced: buckets that are merged even if nothing changed in them.
    """

    job: Job
    root: Place
    changes: tuple[ChangeFile, ...] = ()
    base: tuple[StateFile, ...] = ()
    resolved: tuple[str, ...] = ()
    forced: tuple[int, ...] = ()


def map_events(task: MapTask, *, is_resolved: bool = False) -> Iterator[tuple[int, bytes]]:
    """Read files; give the events of each bucket.

    Args:
        task: what to read.
        is_resolved: key changes that leave out values come from `MapTask.resolved` instead.
    """
    for events in events_of(task):
        wanted = events
        if is_resolved and task.changes:
            wanted = events.filter(pc.invert(key_changes.needs_resolving(events)))
        yield from _split(wanted, task.job)
    for path in task.resolved:
        with pa.ipc.open_file((task.job.table_root / path).read_bytes()) as file:
            yield from _split(file.read_all(), task.job)
    empty = event_schema(task.job.schema).empty_table()
    for bucket in task.forced:
        yield task.job.group(bucket), to_bytes(empty)


def events_of(task: MapTask) -> Iterator[pa.Table]:
    """Events of what a task reads, file by file."""
    for change in task.changes:
        yield from read_changes(task, change)
    for file in task.base:
        rows = read_state(task.job, file)
        yield base_events(rows, row_keys(rows, task.job.schema), task.job.schema)


def read_changes(task: MapTask, change: ChangeFile) -> Iterator[pa.Table]:
    """Events of one landed file, row group by row group.

    Raises:
        LandingError: the file is missing or damaged.
    """
    job = task.job
    path = task.root / change.file.path
    try:
        with parquet_file(path) as file:
            for group in part_of(file.num_row_groups, change):
                rows = in_window(file.read_row_group(group), change)
                rows = conform(rows, job.schemas[change.file.schema_id], job.schema)
                yield to_events(
                    rows,
                    job.schema,
                    numbers_of(rows, change),
                    order=job.order,
                    ignore_through=change.ignore_through,
                )
    except (OSError, pa.ArrowException) as error:
        raise LandingError(f"{path} cannot be read: {error}; is the landing complete?") from error


def part_of(row_groups: int, change: ChangeFile) -> range:
    """Which row groups of a file are meant."""
    part, parts = change.part
    return range(row_groups * part // parts, row_groups * (part + 1) // parts)


def numbers_of(rows: pa.Table, change: ChangeFile) -> npt.NDArray[np.int64]:
    """Number of the commit entry of each row."""
    if not change.numbering:
        return np.full(rows.num_rows, change.n, dtype=np.int64)
    epochs, lsns = as_int64(rows.column("gd_epoch")), as_int64(rows.column("gd_lsn"))
    result = np.full(rows.num_rows, change.last_n, dtype=np.int64)
    for epoch in np.unique(epochs):
        span = [(n, lsn) for n, at, lsn in change.numbering if at == epoch]
        if span:
            numbers = np.array([n for n, _ in span] + [span[-1][0]])
            where = epochs == epoch
            result[where] = numbers[np.searchsorted([lsn for _, lsn in span], lsns[where])]
    return result


def read_state(job: Job, file: StateFile) -> pa.Table:
    """Rows of the current state, in the version of the job.

    Raises:
        LandingError: the file is missing or damaged.
    """
    rows = current_rows(job.table_root, file)
    if file.path.startswith(f"{QUARANTINE}/") and job.schema.source is not None:
        rows = rows.filter(pc.equal(rows.column(SOURCE), job.schema.source))
    rows = conform(rows, job.schemas[file.schema_id], job.schema)
    target = state_schema(job.schema)
    return rows.select(target.names).cast(target)


def _split(events: pa.Table, job: Job) -> Iterator[tuple[int, bytes]]:
    events = events.combine_chunks()
    if not events.num_rows:
        return
    buckets = buckets_of(events.column(KEY).combine_chunks(), job.buckets)
    order = np.argsort(buckets, kind="stable")
    events, buckets = events.take(pa.array(order)), buckets[order]
    edges = [0, *(np.flatnonzero(np.diff(buckets)) + 1).tolist(), len(buckets)]
    for start, stop in itertools.pairwise(edges):
        yield job.group(int(buckets[start])), to_bytes(events.slice(start, stop - start))


def to_bytes(events: pa.Table) -> bytes:
    """Events as an Arrow stream."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, events.schema, options=options) as writer:
        writer.write_table(events)
    return bytes(sink.getvalue())


def from_bytes(payloads: Sequence[bytes]) -> pa.Table:
    """Events from Arrow streams."""
    return pa.concat_tables(
        [pa.ipc.open_stream(pa.py_buffer(payload)).read_all() for payload in payloads]
    )


# --- key changes that leave out values -------------------------------------------------------


def map_edges(task: MapTask) -> Iterator[str]:
    """Find which keys such changes tie together: JSON of table, old key and new key."""
    for events in events_of(task):
        for old, new in key_changes.edges(events, task.job.order):
            yield json.dumps([task.job.index, old.hex(), new.hex()])


def map_involved(task: MapTask, involved: Mapping[int, Involved]) -> Iterator[tuple[int, bytes]]:
    """Give the events of tied keys, each set of keys in one group."""
    tied = involved.get(task.job.index)
    if not tied:
        return
    wanted = pa.array(list(tied), pa.binary())
    for found in events_of(task):
        events = found.filter(pc.is_in(found.column(KEY), value_set=wanted))
        numbers = [tied[key] % _MOVES for key in events.column(KEY).to_pylist()]
        for number in sorted(set(numbers)):
            part = events.filter(pa.array([other == number for other in numbers]))
            yield task.job.group(number), to_bytes(part)


def shares_of_involved(
    jobs: Sequence[Job], involved: Mapping[int, Involved], size: int
) -> dict[int, int]:
    """Share the groups of tied keys out to tasks."""
    groups = collections.Counter(
        job.group(number % _MOVES)
        for job in jobs
        for number in involved.get(job.index, {}).values()
    )
    weights = ((group, count * _KEY_BYTES) for group, count in groups.items())
    return shared_out(weights, size)


def resolve_group(group: int, payloads: Sequence[bytes], jobs: Sequence[Job]) -> list[str]:
    """Fill in what key changes left out; write the events and give the file's path."""
    job, number = jobs[group >> GROUP_BITS], group & ((1 << GROUP_BITS) - 1)
    events = key_changes.resolve(from_bytes(payloads), job.resets, job.schema, job.order)

    def write(file: BinaryIO) -> None:
        with pa.ipc.new_file(file, events.schema) as writer:
            writer.write_table(events)

    serial = np.random.default_rng().integers(2**62)
    path, _ = write_file(write, job.table_root, f"{CURRENT}/_{job.token}-moves-{number}-{serial:x}")
    return [json.dumps([job.index, path])]
