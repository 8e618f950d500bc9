"""Keep the columns of each table with their attribute numbers, as DDL messages of the stream tell them.

`model.columns` proves numbers by a catalogue that is newer than the stream. Where that leaves several ways,
a state kept here chooses one: the columns of the table after the last DDL command that has come. The
messages are in the stream, so a state is exact for the rows behind it, however late they are read.

Anybody who may execute `pg_logical_emit_message` can forge a message. So a state is never believed alone:

- it is asked only where the catalogue proves nothing, and must be one of the ways that the catalogue leaves;
- it must name the columns that the stream describes, with the same types;
- a number that was dropped cannot come back: after a message that says so, none of the table is believed
  until a look;
- once the stream has passed the position of a look at the catalogue, the state must have the columns of that
  look. A table whose rows took numbers from one that has not is *contradicted*, and becomes suspect.

It also keeps what commands did to types of columns since the look before. A new type makes the server write the table
anew. Whether the values are still those of a plain conversion only the statement tells.

States begin with a look at the catalogue, for tables of which no message has come. They hold only while the
triggers are installed as they should be; else all are forgotten. A command whose message does not say
which tables it changed has all states forgotten too.

State of one source, used by the collector's thread. `to_record` keeps it for another process, in some
generations: entries that were to follow may never have been written.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from gaussdecode.model.columns import WireColumn
from gaussdecode.model.ddl_text import adds, retypes
from gaussdecode.model.fingerprint import ColumnState
from gaussdecode.model.landing import Position
from gaussdecode.model.retype import is_exact
from gaussdecode.model.types import spelled_type

_VERSION: Final = 1
_MOST_BYTES: Final = 32 << 20  # above what the triggers write (16 MiB); more is somebody else's
_GENERATIONS: Final = 3  # entries may be on their way to the log; arbitrary
_MOST_DESCENDANTS: Final = 1000  # in a message; where one more is, there are more
_MOST_TABLES: Final = 100_000  # states; forged messages fill no memory
_MOST_STEPS: Final = 200  # commands on tables that are kept between two looks; arbitrary
_MOST_COLUMNS: Final = 1600  # of a table; the server's limit
_PERSISTENCE: Final = 1  # reason of a table_rewrite: SET LOGGED, SET UNLOGGED
_TABLES: Final = frozenset({"table", "table column", "foreign table", "foreign table column"})

Json = dict[str, Any]  # Any: JSON


class StateColumn(NamedTuple):
    """A column of a state.

    Attributes:
        number: attribute number.
        name: name of it.
        type_oid: pg_type.oid.
        type_modifier: -1 for none.
        is_generated: it may not be sent.
    """

    number: int
    name: str
    type_oid: int
    type_modifier: int
    is_generated: bool = False

    @property
    def on_wire(self) -> WireColumn:
        """As the stream describes it."""
        return WireColumn(self.name, self.type_oid, self.type_modifier)


Columns = tuple[StateColumn, ...]


class _Step(NamedTuple):
    """What a command left of a table.

    Attributes:
        retyped: names of the columns that its statement itself retypes, without USING; where it has one, no
            other column was converted either.
        added: names of the columns that it itself adds.
        constants: texts of what rows have from before a column, by its number; None where unknown.
        is_rewritten: the command wrote a table anew: this one, or a partition.
        may_be_unlogged: it was made logged or unlogged, or nobody knows.
        row_xid: transaction that wrote the table's row in pg_class last; 0 where that is unknown.
        lsn: position of its transaction.
        columns: by number; none of a table that was dropped.
    """

    retyped: frozenset[str] = frozenset()
    added: frozenset[str] = frozenset()
    constants: Mapping[int, str] | None = None
    is_rewritten: bool = True
    may_be_unlogged: bool = True
    row_xid: int = 0
    lsn: int = 0
    columns: Mapping[int, ColumnState] = MappingProxyType({})


class _Look(NamedTuple):
    """Columns that a look at the catalogue saw; true once the stream has passed `until_lsn`."""

    until_lsn: int
    columns: dict[int, Columns]  # by OID, of tables of which no DDL has come since


class DdlStates:
    """Of one source.

    Args:
        record: what `to_record` gave; empty for nothing.
        lsn: everything up to here has landed.

    Attributes:
        is_changed: `to_record` gives another record than the one before.
    """

    def __init__(self, record: Json | None = None, lsn: int = 0) -> None:
        generations: list[Json] = (record or {}).get("generations", [])
        self._kept = [of for of in generations if of["lsn"] <= lsn]
        newest: Json = self._kept[-1] if self._kept else {"columns": {}, "used": []}
        self._columns: dict[int, Columns] = {
            int(oid): tuple(StateColumn(*column) for column in columns)
            for oid, columns in newest["columns"].items()
        }
        self._constants: dict[int, dict[int, str]] = {
            int(oid): {int(number): text for number, text in texts.items()}
            for oid, texts in (record or {}).get("constants", {}).items()
        }
        self._used = set[int](newest["used"])  # OIDs whose rows took numbers from a state
        self._doubtful = set[int]()  # OIDs of tables of which an untrue message has come
        self._commands: dict[int, Position] = {}
        self._steps: list[tuple[int, _Step]] = []  # since the look before, with the OID
        self._bare: dict[int, set[int]] = {}  # numbers that `described` was given, by OID
        self._looks: list[_Look] = []
        self._is_recording = bool(self._columns)
        self.is_changed = False

    def to_record(self, lsn: int) -> Json:
        """What is to be kept, before an entry up to a position is."""
        columns = {str(oid): [list(of) for of in columns] for oid, columns in self._columns.items()}
        now = {"lsn": lsn, "columns": columns, "used": sorted(self._used)}
        self._kept = [*self._kept, now][-_GENERATIONS:]
        self.is_changed = False
        constants = {str(oid): dict(texts) for oid, texts in self._constants.items()}
        return {"generations": self._kept, "constants": constants}

    # ---- the stream ------------------------------------------------------------------

    def take(self, content: bytes, at: Position) -> None:
        """Take a DDL message, in the order of the stream; one of another form is left alone.

        Args:
            content: of the message.
            at: its place in the stream.
        """
        if len(content) > _MOST_BYTES:
            return
        try:
            record = json.loads(content)
            if isinstance(record, dict) and record.get("version") == _VERSION:
                self._take(record, at)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            self._forget_all()  # of no form that is known: it may have changed any table

    def numbers(self, oid: int, wire: Sequence[WireColumn]) -> tuple[int, ...] | None:
        """Attribute numbers of the columns that the stream describes; None where no state has them."""
        columns = self._columns.get(oid)
        if columns is None:
            return None
        by_column = {column.on_wire: column for column in columns}
        found = [by_column.get(column) for column in wire]
        numbers = tuple(column.number for column in found if column is not None)
        return numbers if len(numbers) == len(wire) and sorted(numbers) == [*numbers] else None

    def take_commands(self) -> dict[int, Position]:
        """Where the first command on each table since the call before stands, by OID."""
        taken, self._commands = self._commands, {}
        self._steps = []
        self._bare = {}
        return taken

    def keeps_values(self, oid: int, number: int, before: ColumnState, now: ColumnState) -> bool:
        """Whether commands since the look before changed a column's type and no value of it.

        So it is if all of them have come, by the transaction that wrote the column last, and the statement of
        each that wrote the table anew tells it, and new types are such that values are known.

        Args:
            oid: of the table.
            number: of the column.
            before: the column as the look before saw it.
            now: as this one sees it.
        """
        at = before
        for step in self._steps_of(oid):
            of = step.columns.get(number)
            if of is None or not is_exact(_typed(at), _typed(of)):
                return False
            # A table that is written anew takes constants of columns into its rows, and writes the row of these too.
            is_touched = step.is_rewritten and of.row_xid != before.row_xid
            is_told = step.retyped if _typed(at) == _typed(of) else of.name in step.retyped
            if is_touched and not is_told:
                return False
            at = of
        return at is not before and (_typed(at), at.row_xid) == (_typed(now), now.row_xid)

    def tells_added(self, oid: int, number: int, now: ColumnState) -> bool:
        """Whether commands since the look before tell what older rows have in a column that they added.

        A constant is kept: the catalogue may have none any more. All of them are of one transaction, into which
        nobody else forges. Rows that came meanwhile must not have landed without it.

        Args:
            oid: of the table.
            number: of the column.
            now: the column as this look sees it.
        """
        at, text, lsn = None, None, 0
        for step in self._steps_of(oid):
            of = step.columns.get(number)
            if of is None:
                continue
            if at is None:
                text, lsn = (step.constants or {}).get(number), step.lsn
                is_null = step.constants is not None and not step.is_rewritten
                if text is None and not (is_null and of.name in step.added):
                    return False
            elif _typed(at) != _typed(of) or (step.is_rewritten and not step.retyped):
                return False
            if step.lsn != lsn:
                return False
            at = of
        if at is None or (_typed(at), at.row_xid) != (_typed(now), now.row_xid):
            return False
        if text is not None and number in self._bare.get(oid, ()):
            return False
        if text is not None:
            self._constants.setdefault(oid, {})[number] = text
            self.is_changed = True
        return True

    def described(self, oid: int, numbers: Iterable[int]) -> None:
        """Rows land under a schema that has no constant for columns with these numbers."""
        if any(of == oid for of, _ in self._steps):
            self._bare.setdefault(oid, set()).update(numbers)

    def constants(self, oid: int) -> Mapping[int, str]:
        """Texts of what rows of a table have from before a column, by its number; those that were kept."""
        return self._constants.get(oid, {})

    def replaced_file(self, oid: int, row_xid: int) -> bool:
        """Whether commands since the look before replaced the file of a table, and it was always logged.

        Args:
            oid: of the table.
            row_xid: transaction that wrote its row in pg_class last.
        """
        steps = self._steps_of(oid)
        is_of_them = any(step.is_rewritten for step in steps) and steps[-1].row_xid == row_xid
        return is_of_them and not any(step.may_be_unlogged for step in steps)

    def _steps_of(self, oid: int) -> list[_Step]:
        """What commands since the look before left of a table; none if some may be missing."""
        if not self._is_recording or len(self._steps) >= _MOST_STEPS:
            return []
        return [step for of, step in self._steps if of == oid]

    def is_whole(self, oid: int, numbers: Iterable[int]) -> bool:
        """Whether numbers are all of a table's, but for generated columns."""
        left = {of.number: of for of in self._columns[oid]}
        return all(
            of.is_generated for number, of in left.items() if number not in frozenset(numbers)
        )

    def believed(self, oid: int) -> None:
        """Rows of a table take their numbers from its state."""
        if oid not in self._used:
            self._used.add(oid)
            self.is_changed = True

    def forget(self, oid: int) -> None:
        """The state of a table is not true, or nothing says that it is."""
        for look in self._looks:
            look.columns.pop(oid, None)
        if self._columns.pop(oid, None) is not None:
            self.is_changed = True

    def _take(self, record: Json, at: Position) -> None:
        objects = record.get("objects") or [record]
        dropped = record.get("dropped") or ()
        is_cut = record.get("error") is not None or record.get("is_cut") is True
        is_cut = is_cut or (record.get("object_count") or 0) > len(objects)
        if is_cut or (record.get("dropped_count") or 0) > len(dropped):
            self._forget_all()
        states: dict[int, Columns | None] = {}
        steps: dict[int, _Step] = {}
        for of in dropped:
            if of.get("object_type") in _TABLES and of.get("oid"):
                states[int(of["oid"])] = None
        for of in objects:
            below = of.get("descendants") or ()
            if len(below) > _MOST_DESCENDANTS:
                self._forget_all()
            for table in (of, *below):
                if not table.get("oid") or (table is of and of.get("object_type") not in _TABLES):
                    continue
                columns = table.get("columns")
                oid = int(table["oid"])
                states[oid] = None if columns is None else _columns(columns)
                steps[oid] = _step(record, table, columns or (), at.lsn)
        for oid, columns in states.items():
            self._become(oid, columns)
            if len(self._commands) < _MOST_TABLES:
                self._commands.setdefault(oid, at)
            if len(self._steps) < _MOST_STEPS:
                self._steps.append((oid, steps.get(oid, _Step())))

    def _become(self, oid: int, columns: Columns | None) -> None:
        before = self._columns.get(oid)
        self.forget(oid)
        if columns is None or not self._is_recording or oid in self._doubtful:
            return
        if before is not None and not _may_follow(before, columns):
            self._doubtful.add(oid)
            return
        if len(self._columns) >= _MOST_TABLES:
            self._forget_all()
        self._columns[oid] = columns
        self.is_changed = True

    def _forget_all(self) -> None:
        self.is_changed = self.is_changed or bool(self._columns)
        self._columns.clear()
        self._steps.clear()
        self._bare.clear()
        self._looks.clear()
        self._is_recording = False  # the next look begins anew

    # ---- the catalogue ---------------------------------------------------------------

    def looked(self, tables: Mapping[int, Columns], until_lsn: int, *, is_recording: bool) -> None:
        """Take what a look at the catalogue saw.

        Args:
            tables: columns that are sent, by OID, of tables that may have changed since the look before.
            until_lsn: position of the server after the look.
            is_recording: the triggers are as they should be.
        """
        if not is_recording:
            self._forget_all()
        elif tables:
            self._looks.append(_Look(until_lsn, dict(tables)))
        self._is_recording = is_recording

    @property
    def is_recording(self) -> bool:
        """Whether the look before found the triggers as they should be."""
        return self._is_recording

    def due(self, lsn: int) -> set[int]:
        """OIDs of the tables that `passed` compares."""
        over = (look.columns for look in self._looks if look.until_lsn <= lsn)
        return {oid for columns in over for oid in columns if oid in self._columns}

    def passed(self, lsn: int, now: Mapping[int, Columns]) -> list[int]:
        """Compare states with looks whose position the stream has passed.

        Args:
            lsn: everything up to here has come.
            now: columns by OID, as the newest look saw them.

        Returns:
            OIDs of the tables that are contradicted; their states are forgotten.
        """
        over = [look for look in self._looks if look.until_lsn <= lsn]
        self._looks = [look for look in self._looks if look.until_lsn > lsn]
        found: list[int] = []
        for oid, seen in ((oid, of) for look in over for oid, of in look.columns.items()):
            held = self._columns.get(oid)
            if held is None:
                self._columns[oid] = seen
                self._doubtful.discard(oid)
                self.is_changed = True
            elif not any(_has(held, of) for of in (seen, now.get(oid, seen))):
                self.forget(oid)
                self._doubtful.add(oid)
                found += [oid] if oid in self._used else []
                self._used.discard(oid)
        return found


def _columns(records: Iterable[Json]) -> Columns:
    """Read the columns of a message, by number."""
    found = [
        StateColumn(
            int(of["attribute_number"]),
            str(of["name"]),
            int(of["type_oid"]),
            int(of["type_modifier"]),
            of.get("generated") is not None,
        )
        for of in records
    ]
    if len(found) > _MOST_COLUMNS:
        raise ValueError("more columns than a table can have")
    return tuple(sorted(found))


def _step(record: Json, table: Json, columns: Iterable[Json], lsn: int) -> _Step:
    rewritten, count = record.get("rewritten") or (), record.get("rewritten_count") or 0
    is_other = any(int(of["reason"]) & _PERSISTENCE for of in rewritten) or count > len(rewritten)
    statement = None if record.get("statement_is_cut") else record.get("statement")
    by_number = {
        int(of["attribute_number"]): ColumnState(
            str(of["name"]),
            int(of["type_oid"]),
            int(of["type_modifier"]),
            int(of.get("row_xid") or 0),
        )
        for of in columns
    }
    names = [of.name for of in by_number.values()]
    constants = table.get("constants")
    return _Step(
        frozenset(name for name in names if count and retypes(statement, name)),
        frozenset(name for name in names if adds(statement, name)),
        None if constants is None else {int(n): str(text) for n, text in constants.items()},
        bool(count),
        is_other,
        int(table.get("row_xid") or 0),
        lsn,
        by_number,
    )


def _typed(column: ColumnState) -> tuple[str, int]:
    return spelled_type(column.type_oid), column.type_modifier


def _may_follow(before: Columns, after: Columns) -> bool:
    """Whether one command may have made a state of another: new numbers are above all others."""
    numbers = {column.number for column in before}
    highest = max(numbers, default=0)
    return all(column.number in numbers or column.number > highest for column in after)


def _has(held: Columns, seen: Columns) -> bool:
    """Whether a state has the columns that a look saw; it may have some that are not sent."""
    by_number = {column.number: column.on_wire for column in held}
    return all(by_number.get(column.number) == column.on_wire for column in seen)
