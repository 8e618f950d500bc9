"""Write the changelog: copy landed changes into larger files, partitioned by a column.

Rows are as they landed, with the number of their commit entry as ``gd_n``. Each file has rows of one
schema version and one partition. Files of one apply may be small; `compact` merges them.
"""

import dataclasses
import json
import urllib.parse
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from gaussdecode.errors import LandingError
from gaussdecode.spark.log.change_file import ChangeFile, in_window
from gaussdecode.spark.log.place import Place, parquet_file
from gaussdecode.spark.merge.context import Context
from gaussdecode.spark.merge.engine import Engine
from gaussdecode.spark.merge.tasks import numbers_of, part_of
from gaussdecode.spark.merge.work import Work, portions
from gaussdecode.spark.target.state_file import (
    BY_COMMIT_DATE,
    CHANGELOG,
    StateFile,
    spelled_value,
    write_state,
)


@dataclasses.dataclass(frozen=True, slots=True)
class ChangelogTask:
    """Landed files of one table to copy.

    Attributes:
        index: number of the table in the run.
        root: root of the landing.
        table_root: directory of the table in the target.
        changes: files to copy.
        by: partition column.
        token: token of the run.
    """

    index: int
    root: Place
    table_root: Place
    changes: tuple[ChangeFile, ...]
    by: str
    token: str


def log_changes(context: Context, worker: Engine, works: Sequence[Work]) -> None:
    """Copy the new changes of tables into their changelogs."""
    root, store, size = context.landing.root, context.store, context.options.sizes.read
    planned = [
        ChangelogTask(index, root, store.table_root(work.table), part, by, context.token)
        for index, work in enumerate(works)
        if (by := context.changelog_by(work.version))
        for part in portions([*work.passed, *(f for era in work.eras for f in era.files)], size)
    ]
    for text in worker.each(planned, write_changelog):
        index, record = json.loads(text)
        file = StateFile(**record)
        works[index].changelog.append(file)
        context.summary.bytes_written += file.bytes


def write_changelog(task: ChangelogTask) -> Iterator[str]:
    """Copy files; describe each new one as JSON of the table's number and a `StateFile`."""
    held: dict[tuple[str, str], list[pa.Table]] = {}
    for change in task.changes:
        path = task.root / change.file.path
        try:
            with parquet_file(path) as file:
                groups = part_of(file.num_row_groups, change)
                if not groups:
                    continue
                rows = in_window(file.read_row_groups(groups), change)
        except (OSError, pa.ArrowException) as error:
            raise LandingError(f"{path} cannot be read: {error}") from error
        rows = rows.append_column("gd_n", pa.array(numbers_of(rows, change)))
        for value, part in split_by(rows, task.by):
            held.setdefault((change.file.schema_id, value), []).append(part)
    for (schema_id, value), parts in held.items():
        yield json.dumps([task.index, dataclasses.asdict(_write(task, schema_id, value, parts))])


def _write(task: ChangelogTask, schema_id: str, value: str, parts: list[pa.Table]) -> StateFile:
    rows = pa.concat_tables(parts)
    partition = f"{urllib.parse.quote(task.by, safe='')}={value}"
    name = f"{CHANGELOG}/{partition}/{task.token}"
    return write_state(rows, task.table_root, name, schema_id, partition=partition)


def split_by(rows: pa.Table, by: str) -> Iterator[tuple[str, pa.Table]]:
    """Split rows by the value of a column; give its path form with each part."""
    yield from split_on(rows, _partition_values(rows, by))


def split_on(rows: pa.Table, values: pa.ChunkedArray) -> Iterator[tuple[str, pa.Table]]:
    """Split rows by values; give the value's path form with each part."""
    for value in pc.unique(values).to_pylist():
        same = pc.is_null(values) if value is None else pc.equal(values, value)
        yield spelled_value(value), rows.filter(same)


def _partition_values(rows: pa.Table, by: str) -> pa.ChunkedArray:
    if by == BY_COMMIT_DATE:
        return pc.cast(rows.column("gd_ts"), pa.date32())
    if by not in rows.column_names:
        return pa.chunked_array([pa.nulls(rows.num_rows, pa.string())])
    return rows.column(by)
