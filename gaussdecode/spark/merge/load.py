"""Create first versions of tables from rows that were read at the source, at a known position.

Given files in the form of a landed snapshot, with rows of one table at one position; promises a version
from which an apply continues. It takes the changes after that position, in whichever entry they land.
"""

import dataclasses
from collections.abc import Sequence

from gaussdecode.model.landing import LandingFile, Position
from gaussdecode.spark.log.change_file import ChangeFile
from gaussdecode.spark.log.landing import Landing
from gaussdecode.spark.log.schema import TableSchema
from gaussdecode.spark.merge.options import Summary
from gaussdecode.spark.merge.plan import Era, Plan, TablePlan
from gaussdecode.spark.merge.run import Run


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Loadable:
    """A table whose rows were all read.

    Attributes:
        table: directory of the table.
        schema_id: schema version of its rows.
        n: an entry; the rows include everything that landed up to it.
        position: position of the rows: epoch and LSN.
        files: path below the staged landing, rows and bytes of each file; none for an empty table.
    """

    table: str
    schema_id: str
    n: int
    position: tuple[int, int]
    files: tuple[tuple[str, int, int], ...]


def load(run: Run, staged: Landing, tables: Sequence[Loadable]) -> Summary:
    """Create the first versions of tables.

    Args:
        run: run that reads from `staged`.
        staged: landing with their schemas and files.
        tables: tables that the target lacks.

    Raises:
        LandingError: a file is damaged, or another writer committed first.
    """
    plan = Plan(max(of.n for of in tables))
    plan.tables = {of.table: _planned(staged, of) for of in tables}
    return run.load(plan)


def _planned(staged: Landing, of: Loadable) -> TablePlan:
    record = staged.schema_record(of.table, of.schema_id)
    schema = TableSchema.from_record(of.schema_id, record)
    files = [_change(of, *file) for file in of.files]
    era = Era(schema, {of.schema_id: schema}, files, [])
    return TablePlan(of.table, of.n, [era], of.position, since=of.n)


def _change(of: Loadable, path: str, rows: int, size: int) -> ChangeFile:
    epoch, lsn = of.position
    file = LandingFile(
        table=of.table,
        path=path,
        rows=rows,
        bytes=size,
        first=Position(lsn, 0),
        last=Position(lsn, 0),
        schema_id=of.schema_id,
        ops={"R": rows},
        has_unchanged=False,
        has_key_change=False,
        checksum="",
    )
    return ChangeFile(of.n, of.n, is_snapshot=True, file=file, epoch=epoch)
