"""The plan of an apply: the new changes of each table, and where a table stops.

`planner` makes it, `run` carries it out. The files of a table are cut into *eras*; within an era the same
columns identify a row.
"""

import dataclasses
import datetime as dt
from collections.abc import Mapping
from typing import Final, Self

from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import LandingFile
from gaussdecode.spark.log.change_file import ChangeFile
from gaussdecode.spark.log.events import Reset
from gaussdecode.spark.log.schema import TableSchema
from gaussdecode.spark.merge.on_ddl import Comment, OnDdl
from gaussdecode.spark.merge.routes import Home
from gaussdecode.spark.target.decided import Decided, Stop

SYSTEM_TABLES: Final = frozenset({"gd_transactions", "gd_messages", "gd_ddl"})


@dataclasses.dataclass(slots=True)
class Era:
    """Files whose schemas identify rows by the same columns.

    Attributes:
        schema: the last schema; rows are converted to it.
        schemas: all schemas, by id.
        files: files in order of position.
        resets: resets in order of position.
        ddl: for each DDL command that changed the table: its entry, and the schema after it.
    """

    schema: TableSchema
    schemas: dict[str, TableSchema]
    files: list[ChangeFile]
    resets: list[Reset]
    ddl: list[tuple[int, TableSchema]] = dataclasses.field(default_factory=list)

    @property
    def may_move_unsent(self) -> bool:
        """Whether an update may change a key and lack a value."""
        return any(f.file.has_key_change for f in self.files) and any(
            f.file.has_unchanged for f in self.files
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Doubt:
    """A suspect entry that names a table.

    Attributes:
        n: number of the entry.
        why: the reason, in words.
        oid: OID of the table that took over its name, if any; else 0.
        comes_whole: whether the stream has all rows of that new table.
        source: source that changed its rows, if there are several; None for the only one.
        of: OID of the table itself; 0 where the entry does not tell.
        is_rename: nothing is said but that the table has rows under another name.
    """

    n: int
    why: str
    oid: int = 0
    comes_whole: bool = False
    source: str | None = None
    of: int = 0
    is_rename: bool = False

    @classmethod
    def from_entry(cls, entry: CommitEntry, table: str) -> "Doubt":
        """Read the doubt about a table from an entry."""
        said = entry.extra.get("changes", {}).get(table, {})
        why = said.get("text") or entry.extra.get("text", "")
        return cls(
            entry.n,
            str(why),
            int(said.get("oid") or 0),
            bool(said.get("comes_whole")),
            entry.extra.get("source"),
            int(said.get("table_oid") or 0),
            bool(said.get("is_rename")),
        )


@dataclasses.dataclass(slots=True)
class TablePlan:
    """The new changes of one table.

    Attributes:
        table: directory of the table.
        to: entry that it is applied up to.
        eras: eras in order; none if nothing changed.
        ignore_through: epoch and position that a snapshot already covers, or None.
        stop: the stop that ends it early, or None.
        passed: files that a snapshot replaces unread; for the changelog only.
        parts: with several sources, the plan of each by name; `eras` is then empty.
        schema: joint schema of the parts.
        made: schemas that no file has: those after a DDL command, by id.
        comments: comments that DDL commands set, with their entries.
        waits: DDL commands whose change is left to the next rows, with the reason.
    """

    table: str
    to: int
    eras: list[Era]
    ignore_through: tuple[int, ...] | None
    stop: Stop | None = None
    passed: list[ChangeFile] = dataclasses.field(default_factory=list)
    parts: dict[str, "TablePlan"] = dataclasses.field(default_factory=dict)
    schema: TableSchema | None = None
    made: dict[str, TableSchema] = dataclasses.field(default_factory=dict)
    comments: list[tuple[int, Comment]] = dataclasses.field(default_factory=list)
    waits: list[str] = dataclasses.field(default_factory=list)

    @property
    def landed(self) -> list[LandingFile]:
        """All its landed files, of all sources; those that are passed over come first."""
        parts = [self, *self.parts.values()]
        passed = [change.file for part in parts for change in part.passed]
        return [*passed, *(f.file for part in parts for era in part.eras for f in era.files)]

    @property
    def changed(self) -> dict[str | None, "TablePlan"]:
        """Plans to merge separately, by source: the parts with changes, or the whole table."""
        found = self.parts.items() if self.parts else [(None, self)]
        return {source: part for source, part in found if part.eras}


@dataclasses.dataclass(slots=True)
class Plan:
    """The new changes of all tables.

    Attributes:
        to: entry that it includes everything up to.
        tables: tables with changes, by directory.
        gap: number of a gap entry that stopped it, or None.
        early: number of its first snapshot entry with a condition whose rows' position it does not
            reach; None for none.
        accepted_gaps: numbers of accepted gap entries.
        suspects: numbers of suspect entries in it.
        doubts: suspect entries that name a table and are not accepted, by directory.
        quarantined: entry at which a table entered quarantine, by directory. Later changes of the
            table are not in the plan, until a snapshot of it.
        known: of those, epoch and OID of the tables whose OID is known.
        withheld: of those, names under which rows may have been held back that are another table's.
        read_since: of those known, former names of tables that a snapshot may have read under
            another name since: rows under that are not held back.
        commit_time: commit time of its newest transaction.
        position: position of the source after it: epoch, LSN and CSN; None if nothing is new.
        part: CSN up to which it includes entry `to` + 1; None for nothing.
        on_ddl: its DDL commands, and what they do.
        waits: DDL commands whose change is left to the next rows, with the reason.
        moves: names in the landing that tables got, with their entries, by directory.
        names: see `Routes`.
    """

    to: int
    tables: dict[str, TablePlan] = dataclasses.field(default_factory=dict)
    gap: int | None = None
    early: int | None = None
    accepted_gaps: list[int] = dataclasses.field(default_factory=list)
    suspects: list[int] = dataclasses.field(default_factory=list)
    doubts: dict[str, list[Doubt]] = dataclasses.field(default_factory=dict)
    quarantined: dict[str, int] = dataclasses.field(default_factory=dict)
    known: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    withheld: set[str] = dataclasses.field(default_factory=set)
    read_since: set[str] = dataclasses.field(default_factory=set)
    commit_time: dt.datetime | None = None
    position: tuple[int, int, int | None] | None = None
    part: int | None = None
    on_ddl: OnDdl = dataclasses.field(default_factory=OnDdl)
    waits: list[str] = dataclasses.field(default_factory=list)
    moves: dict[str, list[tuple[int, str]]] = dataclasses.field(default_factory=dict)
    names: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Applied:
    """How far a table is applied.

    Attributes:
        n: applied up to this entry; -1 for nothing.
        schema: schema of its rows, or None.
        ignore_through: position that an earlier snapshot covers.
        decided: an operator's declarations about its columns.
        is_stopped: whether it is stopped before entry n + 1.
        part: CSN up to which entry n + 1 is applied too; 0 for nothing.
        ignored: `ignore_through` per source, if there are several.
        home: the table in the version of the database, or in the newest where that has none.
        held: names in the landing that the table got after the entry that it is stopped at.
    """

    n: int = -1
    schema: TableSchema | None = None
    ignore_through: tuple[int, ...] | None = None
    decided: Decided = dataclasses.field(default_factory=Decided)
    is_stopped: bool = False
    part: int = 0
    ignored: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    home: Home | None = None
    held: tuple[str, ...] = ()

    def of(self, source: str) -> Self:
        """The same for one of several sources."""
        schema = None if self.schema is None else self.schema.of(source)
        return dataclasses.replace(self, schema=schema, ignore_through=self.ignored.get(source))
