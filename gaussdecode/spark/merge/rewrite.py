"""Rewrite files of a target whose columns changed, or whose rows failed a test.

Readers of Delta Lake read all files of a table by its current names and types. The merge converts rows
of the current state. This module rewrites closed intervals and changes if a column was renamed, retyped
or created again. It also removes rows in quarantine from the table's files, and gives them back to the
next merge.
"""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gaussdecode.errors import LandingError
from gaussdecode.model.words import counted
from gaussdecode.spark.log.conversion import conform
from gaussdecode.spark.log.place import Place, read_table
from gaussdecode.spark.log.schema import SOURCE, TableSchema, UnknownColumnsError, reads_as
from gaussdecode.spark.merge.context import Context
from gaussdecode.spark.merge.engine import Engine
from gaussdecode.spark.merge.work import Work
from gaussdecode.spark.target.deletion_vectors import ended_rows, is_current, spans, write_added
from gaussdecode.spark.target.state_file import CHANGELOG, CURRENT, HISTORY, StateFile, write_state
from gaussdecode.spark.target.table_shape import shape_of

PLACE: Final = ("gd_op", "gd_epoch", "gd_lsn", "gd_seq")
"""Columns that tell rows of one source apart, key or none."""


@dataclasses.dataclass(frozen=True, slots=True)
class ConformTask:
    """A file of closed intervals or changes whose schema differs from the table's.

    Attributes:
        index: number of the table in the run.
        root: directory of the table.
        file: file to rewrite.
        old: current schema of the file.
        new: wanted schema.
        columns: columns of the new file.
        token: token of the run.
    """

    index: int
    root: Place
    file: StateFile
    old: TableSchema
    new: TableSchema
    columns: pa.Schema
    token: str


def conform_works(context: Context, works: Sequence[Work]) -> None:
    """Rewrite closed intervals and changes whose columns now have other names or types."""
    planned = [task for index, work in enumerate(works) for task in _stale(context, index, work)]
    if planned:
        count = counted(len(planned), "file")
        context.progress(f"columns have other names or types: {count} of history and changelog")
    engine = context.engine.for_bytes(0, sum(task.file.bytes for task in planned))
    for text in engine.each(planned, conform_file):
        index, path, record = json.loads(text)
        work, new = works[index], StateFile(**record)
        context.summary.bytes_written += new.bytes
        for files in (work.closed, work.changelog):
            files[:] = [new if file.path == path else file for file in files]


def _stale(context: Context, index: int, work: Work) -> Iterator[ConformTask]:
    schema, before, store = work.schema, work.version, context.store
    assert schema is not None
    if before is not None:
        work.closed[:0], work.changelog[:0] = before.closed, before.changelog
    columns = shape_of(schema).columns
    for folder, files in ((HISTORY, work.closed), (CHANGELOG, work.changelog)):
        for file in files:
            old = store.schema(work.table, file.schema_id)
            new = schema if not schema.parts else schema.of(old.source)
            if new is not None and is_stale(file, old, new):
                root = store.table_root(work.table)
                yield ConformTask(index, root, file, old, new, columns[folder], context.token)


def conform_file(task: ConformTask) -> Iterator[str]:
    """Rewrite a file; give JSON of the table's number, the old path and the new file."""
    rows = _conformed(_read(task.root, task.file), task.old, task.new)
    # A column of old values that has none of the columns of now cannot be written, and says nothing.
    names = {f.name for f in rows.schema if not pa.types.is_struct(f.type) or f.type.num_fields}
    fields = [field for field in task.columns if field.name in names]
    rows = rows.select([field.name for field in fields])
    struct = pa.schema([_as_held(rows, field) for field in fields])
    folder = task.file.path.rpartition("/")[0]
    new = write_state(
        rows.cast(struct), task.root, f"{folder}/{task.token}-again", task.new.schema_id,
        partition=task.file.partition,
    )  # fmt: skip
    yield json.dumps([task.index, task.file.path, dataclasses.asdict(new)])


def _conformed(rows: pa.Table, old: TableSchema, new: TableSchema) -> pa.Table:
    """Convert rows to the table's schema; if columns cannot be matched, drop those of other types."""
    try:
        return conform(rows, old, new)
    except UnknownColumnsError:
        return rows.drop_columns(list(_other_types(old, new) & set(rows.column_names)))


def _as_held(rows: pa.Table, field: pa.Field) -> pa.Field:
    """The wanted field, but a struct keeps the fields of the file, which may be fewer."""
    return rows.schema.field(field.name) if pa.types.is_struct(field.type) else field


def is_stale(file: StateFile, old: TableSchema, new: TableSchema) -> bool:
    """Whether reading a file by the table's current column names would give wrong rows.

    If columns cannot be matched, rows keep their names.
    """
    try:
        return file.schema_id != new.schema_id and not reads_as(old, new)
    except UnknownColumnsError:
        return bool(_other_types(old, new))


def _other_types(old: TableSchema, new: TableSchema) -> set[str]:
    """Names of columns whose type changed."""
    types = {column.name: column.type for column in old.columns}
    return {c.name for c in new.columns if types.get(c.name, c.type) != c.type}


@dataclasses.dataclass(frozen=True, slots=True)
class ParkTask:
    """A file of the current state that may hold rows in quarantine.

    Attributes:
        root: directory of the table.
        file: file to check.
        quarantine: files with the rows in quarantine.
        source: source of the file's rows; None for the only one.
        token: token of the run.
    """

    root: Place
    file: StateFile
    quarantine: tuple[StateFile, ...]
    source: str | None
    token: str


def park(context: Context, worker: Engine, work: Work) -> None:
    """Remove the rows in quarantine from the table's files."""
    if not work.quarantine:
        return
    root = context.store.table_root(work.table)
    planned = [
        ParkTask(root, file, work.quarantine, source, context.token)
        for source, files in context.store.by_source(work.table, work.current).items()
        for file in files
    ]
    for text in worker.each(planned, park_rows):
        path, record = json.loads(text)
        work.current = [file for file in work.current if file.path != path]
        if record is not None:
            work.current.append(StateFile(**record))
            context.summary.bytes_written += record["bytes"]


def park_rows(task: ParkTask) -> Iterator[str]:
    """Rewrite a file without its rows in quarantine; give JSON of the old path, and the new file or None."""
    rows = _read(task.root, task.file)
    kept = is_current((0, rows.num_rows), ended_rows(task.root, task.file))
    places = rows.select(PLACE).append_column("at", pa.array(np.arange(rows.num_rows)))
    out = [_places(_read(task.root, file), task.source) for file in task.quarantine]
    found = places.join(pa.concat_tables(out), list(PLACE), join_type="left semi")
    named = found.column("at").to_numpy()
    if not kept[named].any():
        return
    kept[named] = False
    file, new = task.file, None
    name = f"{CURRENT}/{task.token}-kept"
    if file.bucket >= 0 and kept.any():
        left = rows.filter(pa.array(kept))
        new = write_state(left, task.root, name, file.schema_id, file.bucket, file.partition)
    elif kept.any():
        parts = {
            bucket: rows.slice(start, stop - start).filter(pa.array(kept[start:stop]))
            for bucket, (start, stop) in spans(task.root / file.path).items()
        }
        parts = {bucket: of for bucket, of in parts.items() if of.num_rows}
        new = write_added(task.root, name, file.schema_id, parts, file.partition)
    yield json.dumps([file.path, None if new is None else dataclasses.asdict(new)])


def _places(rows: pa.Table, source: str | None) -> pa.Table:
    if source is not None:
        rows = rows.filter(pc.equal(rows.column(SOURCE), source))
    return rows.select(PLACE)


def _read(root: Place, file: StateFile) -> pa.Table:
    path = root / file.path
    try:
        return read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise LandingError(f"{path} cannot be read: {error}; restore the target") from error
