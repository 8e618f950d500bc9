"""Compare the catalogue states of a table, to find changes that the stream does not show.

The stream has the rows that are inserted, updated and deleted. Other commands change stored rows, or
the text that they are read by, and send nothing: a partition that is attached with its rows, detached,
dropped or emptied under a table that is published as one; a new type of a column; a default that old
rows get; labels of an enumeration that are renamed; a table that is unlogged for a while; a name that
goes to another table. Each of them leaves another state of the catalogue behind.

`TableState` is that state for one published table. `differences` says in words what became of a
table between two states, of what the stream cannot have shown. It knows no server and asks nobody.

A file of a table that was replaced (`FileState.file_node`) is no difference by itself: TRUNCATE, which
the stream shows, VACUUM FULL and CLUSTER replace it too. `Replaced` says what is known of why.
"""

import dataclasses
import enum
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, Self

from gaussdecode.model.retype import is_exact
from gaussdecode.model.seal import canonical_json
from gaussdecode.model.title import table_title
from gaussdecode.model.types import spelled_type

PERMANENT: Final = "p"
TABLE: Final = "r"
_ENUM: Final = "e"

Json = dict[str, Any]  # Any: JSON


class MissingRows(str):
    """What is said where a table has rows that no stream had; so also where no row of it has come."""

    __slots__ = ()


@dataclasses.dataclass(frozen=True, slots=True)
class ColumnState:
    """One column.

    Attributes:
        name: name of it.
        type_oid: pg_type.oid.
        type_modifier: -1 for none.
        row_xid: transaction that wrote its row in pg_attribute last.
    """

    name: str
    type_oid: int
    type_modifier: int
    row_xid: int


@dataclasses.dataclass(frozen=True, slots=True)
class FileState:
    """The table itself, or one partition of a table that is published as one.

    Attributes:
        title: schema and name.
        kind: pg_class.relkind: ``r``; ``f`` for a foreign table; ``p`` for the published table itself
            where its rows are in partitions.
        file_node: pg_class.relfilenode; another one when the file was replaced.
        persistence: pg_class.relpersistence.
        identity: pg_class.relreplident.
        key: columns of the replica identity, as SQL names.
        attached: transactions that attached it and what stands above it; empty for the table itself.
        row_xid: transaction that wrote its row in pg_class last.
        constants: text of the value that rows from before a column was added have in it
            (pg_attribute.attmissingval), by name of the column.
        is_attached_empty: it was created as a partition, or has no row at all. Not remembered.
        is_as_created: its row in pg_class was never written again. Not remembered.
    """

    title: str
    kind: str
    file_node: int
    persistence: str
    identity: str
    key: str
    attached: str
    row_xid: int
    constants: Mapping[str, str] = dataclasses.field(default_factory=dict)
    is_attached_empty: bool = dataclasses.field(default=False, compare=False)
    is_as_created: bool = dataclasses.field(default=False, compare=False)

    def to_record(self) -> list[Any]:  # Any: JSON
        """Make it fit for JSON; short, as there are many."""
        fields: list[Any] = [
            self.title,
            self.kind,
            self.file_node,
            self.persistence,
            self.identity,
            self.key,
            self.attached,
            self.row_xid,
        ]
        return [*fields, dict(self.constants)] if self.constants else fields


@dataclasses.dataclass(frozen=True, slots=True)
class TypeState:
    """A type of a user's, or of an extension.

    Attributes:
        name: name for people.
        kind: pg_type.typtype.
        uses: OIDs of the types that it is made of.
        parts: data that decide the text of its values: labels by OID, attributes by number, or the
            function that prints it.
        relation: pg_class.oid of a composite type; else 0.
    """

    name: str
    kind: str
    uses: tuple[int, ...]
    parts: Mapping[str, str]
    relation: int = 0

    def to_record(self) -> list[Any]:  # Any: JSON
        """Make it fit for JSON."""
        return [self.name, self.kind, list(self.uses), dict(self.parts), self.relation]

    @classmethod
    def from_record(cls, record: list[Any]) -> Self:  # Any: JSON
        """Read what `to_record` wrote."""
        name, kind, uses, parts, relation = record
        return cls(name, kind, tuple(uses), parts, relation)


@dataclasses.dataclass(frozen=True, slots=True)
class TableState:
    """One published table.

    Attributes:
        oid: pg_class.oid.
        schema: name.
        name: name of the table.
        is_root: a partitioned table that is published as one.
        files: files by OID.
        columns: columns by number, those that are sent.
        column_count: the highest number that a column ever had.
        can_be_unlogged: the server lets it be made unlogged: no publication lists it by itself.
        sends_truncate: TRUNCATE shows, or nothing that takes rows away is wanted.
    """

    oid: int
    schema: str
    name: str
    is_root: bool
    files: Mapping[int, FileState]
    columns: Mapping[int, ColumnState]
    column_count: int
    can_be_unlogged: bool = False
    sends_truncate: bool = True

    @property
    def title(self) -> str:
        """How it is spelled; different tables have different titles."""
        return table_title(self.schema, self.name)

    @property
    def comes_whole(self) -> bool:
        """Whether it was published from its creation on, under the name that it has."""
        return self.can_be_unlogged and all(file.is_as_created for file in self.files.values())

    def to_record(self) -> Json:
        """Make it fit for JSON."""
        return {
            "schema": self.schema,
            "name": self.name,
            "root": self.is_root,
            "flags": [self.column_count, self.can_be_unlogged, self.sends_truncate],
            "files": {str(oid): file.to_record() for oid, file in self.files.items()},
            "columns": {
                str(number): [of.name, of.type_oid, of.type_modifier, of.row_xid]
                for number, of in self.columns.items()
            },
        }

    @classmethod
    def from_record(cls, oid: int, record: Json) -> Self:
        """Read what `to_record` wrote."""
        column_count, can_be_unlogged, sends_truncate = record["flags"]
        return cls(
            oid,
            record["schema"],
            record["name"],
            record["root"],
            {int(key): FileState(*of) for key, of in record["files"].items()},
            {int(key): ColumnState(*of) for key, of in record["columns"].items()},
            column_count,
            can_be_unlogged,
            sends_truncate,
        )


Types = Mapping[int, TypeState]
"""Types by pg_type.oid, without PostgreSQL's own."""


class Tables(Mapping[int, TableState]):
    """States of many tables by OID, each in a few hundred bytes: they are looked at when something changes.

    Args:
        packed: each state as `pack` wrote it.
        titles: those that were asked for.
    """

    def __init__(
        self,
        packed: Mapping[int, bytes] = MappingProxyType({}),
        titles: Mapping[int, str] = MappingProxyType({}),
    ) -> None:
        self._packed = packed
        self._titles = dict(titles)

    @classmethod
    def of(cls, tables: Mapping[int, TableState]) -> Self:
        """Keep states."""
        return cls({oid: _packed(table.to_record()) for oid, table in tables.items()})

    @classmethod
    def from_record(cls, record: Json) -> Self:
        """Read what `to_record` wrote."""
        return cls({int(oid): _packed(of) for oid, of in record.items()})

    def to_record(self) -> Json:
        """Make them fit for JSON."""
        return {str(oid): _unpacked(of) for oid, of in self._packed.items()}

    def changed(self, tables: Mapping[int, TableState], gone: Iterable[int] = ()) -> Self:
        """The same, with other states of some tables, and without others."""
        left = set(gone)
        kept = {oid: of for oid, of in self._packed.items() if oid not in left}
        return type(self)(
            {**kept, **{oid: _packed(table.to_record()) for oid, table in tables.items()}},
            {oid: of for oid, of in self._titles.items() if oid not in tables and oid in kept},
        )

    def title(self, oid: int) -> str:
        """Title of a table, whose state is unpacked for it once."""
        if oid not in self._titles:
            self._titles[oid] = self[oid].title
        return self._titles[oid]

    def __getitem__(self, oid: int) -> TableState:
        return TableState.from_record(oid, _unpacked(self._packed[oid]))

    def __contains__(self, oid: object) -> bool:
        return oid in self._packed

    def __iter__(self) -> Iterator[int]:
        return iter(self._packed)

    def __len__(self) -> int:
        return len(self._packed)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tables) and self._packed == other._packed


def _packed(record: Json) -> bytes:
    return zlib.compress(canonical_json(record), 1)


def _unpacked(packed: bytes) -> Json:
    record: Json = json.loads(zlib.decompress(packed))
    return record


class Replaced(enum.Enum):
    """What is known of why files of a table are others than before."""

    NO = "none is"
    SHOWN = "the stream shows it: a TRUNCATE"
    HIDDEN = "the stream does not show it"
    UNSURE = "a TRUNCATE may come in the stream that tells"


def why_replaced(known: TableState, seen: TableState, *, is_emptied: bool) -> Replaced:
    """Judge files that were replaced.

    Args:
        known: file of the table before.
        seen: file of the table now.
        is_emptied: the stream has shown a TRUNCATE of the table meanwhile.
    """
    replaced = replaced_files(known, seen)
    if not replaced:
        return Replaced.NO
    if not seen.is_root and not seen.can_be_unlogged and seen.sends_truncate:
        return (
            Replaced.NO
        )  # a TRUNCATE, which shows, or a rewrite: what that changes shows by columns
    if not seen.sends_truncate or (seen.is_root and not _is_of_one_command(known, seen, replaced)):
        return Replaced.HIDDEN
    return Replaced.SHOWN if is_emptied else Replaced.UNSURE


def replaced_files(known: TableState, seen: TableState) -> set[int]:
    """OIDs of the files that were replaced."""
    common = known.files.keys() & seen.files.keys()
    return {oid for oid in common if known.files[oid].file_node != seen.files[oid].file_node}


def _is_of_one_command(known: TableState, seen: TableState, replaced: set[int]) -> bool:
    """Whether all partitions were replaced together, as a TRUNCATE of the whole table does."""
    others = known.files.keys() & seen.files.keys() - replaced
    has_stayed = any(seen.files[oid].kind == TABLE for oid in others)
    return not has_stayed and len({seen.files[oid].row_xid for oid in replaced}) == 1


def differences(
    known: TableState,
    seen: TableState,
    known_types: Types,
    seen_types: Types,
    is_told: Callable[[int], bool] = lambda _: False,
) -> list[str]:
    """Say what became of a table that its stream cannot have shown; nothing for no difference.

    Files that were replaced are left to `why_replaced`, but for what they mean together with
    columns that were altered.

    Args:
        known: the state that everything landed so far goes by.
        seen: the state now, of the table with the same OID.
        known_types: types of the first state.
        seen_types: types of the second state.
        is_told: whether DDL of the stream tells the values that older rows have in a column, given its number.
    """
    return [
        *_partitions(known, seen),
        *_persistence(known, seen),
        *_identities(known, seen),
        *_columns(known, seen, is_told),
        *_types(known, seen, known_types, seen_types),
    ]


def _partitions(known: TableState, seen: TableState) -> Iterable[str]:
    if not (known.is_root or seen.is_root):
        return
    for oid, file in known.files.items():
        now = seen.files.get(oid)
        if now is None:
            yield f"partition {file.title} was detached or dropped, and its rows went with it"
        elif now.attached != file.attached:
            yield f"partition {file.title} was detached for a while"
    for oid, file in seen.files.items():
        if oid not in known.files and file.kind != TABLE:
            yield MissingRows(
                f"partition {file.title} was attached, and is a foreign table, whose rows do not show"
            )
        elif oid not in known.files and not file.is_attached_empty:
            yield MissingRows(
                f"partition {file.title} was attached, with the rows that it had by then"
            )


def _persistence(known: TableState, seen: TableState) -> Iterable[str]:
    for oid, file in seen.files.items():
        before = known.files.get(oid)
        was_logged = before is None or before.persistence == PERMANENT
        of = f"partition {file.title}" if seen.is_root else "it"
        if file.persistence != PERMANENT and was_logged:
            yield MissingRows(
                f"{of} is unlogged: changes of it do not show, and once the table was read again "
                "nothing says so any more"
            )
        elif file.persistence == PERMANENT and not was_logged:
            yield MissingRows(f"{of} was unlogged for a while, and changes of it did not show")


def _identities(known: TableState, seen: TableState) -> Iterable[str]:
    """Partitions whose old keys are not those of the table."""
    if not seen.is_root:
        return
    own = _identity(seen.files.get(seen.oid))
    for oid, file in seen.files.items():
        before = known.files.get(oid)
        if oid == seen.oid or _identity(file) == own:
            continue
        if before is None or _identity(before) != _identity(file):
            yield (
                f"partition {file.title} has another replica identity than the table, and what is updated "
                "or deleted in it cannot be told"
            )


def _identity(file: FileState | None) -> tuple[str, str] | None:
    return None if file is None else (file.identity, file.key)


def _columns(known: TableState, seen: TableState, is_told: Callable[[int], bool]) -> Iterable[str]:
    common = known.files.keys() & seen.files.keys()
    stayed = [oid for oid in common if seen.files[oid].kind == TABLE]
    is_rewritten = bool(replaced_files(known, seen))
    for number, column in seen.columns.items():
        before = known.columns.get(number)
        if before is None and number <= known.column_count:
            yield f"column {column.name} was not sent before"
        elif before is None:
            is_hidden = is_rewritten and not is_told(number)
            yield from _added(seen, column, stayed, is_hidden=is_hidden)
        elif not is_told(number):
            yield from _altered(before, column, is_rewritten=is_rewritten)


def _added(
    seen: TableState, column: ColumnState, stayed: list[int], *, is_hidden: bool
) -> Iterable[str]:
    """What old rows have in a new column: NULL, one constant, or what nobody can tell."""
    if is_hidden:
        yield f"column {column.name} was added with values that are written in the rows alone"
        return
    constants = {seen.files[oid].constants.get(column.name) for oid in stayed}
    if len(constants) > 1:
        yield f"column {column.name} was added with another value in each partition"


def _altered(before: ColumnState, now: ColumnState, *, is_rewritten: bool) -> Iterable[str]:
    old = spelled_type(before.type_oid), before.type_modifier
    new = spelled_type(now.type_oid), now.type_modifier
    if old != new and (is_rewritten or not is_exact(old, new)):
        names = old[0], new[0]
        changed = (
            "has another modifier" if names[0] == names[1] else f"was {names[0]}, is {names[1]}"
        )
        yield f"the type of column {now.name} was changed ({changed}): old rows have what the server made of them"
    elif is_rewritten and before.row_xid != now.row_xid:
        yield f"column {now.name} was altered, and the table written anew: its values may be others"


def _types(
    known: TableState, seen: TableState, known_types: Types, seen_types: Types
) -> Iterable[str]:
    found: set[int] = set()
    for number, column in seen.columns.items():
        if number in known.columns and known.columns[number].type_oid == column.type_oid:
            found |= reached(column.type_oid, known_types)
    for oid in sorted(found):
        before, now = known_types[oid], seen_types.get(oid)
        if now is None or not _looks_alike(before, now):
            yield f"values of type {before.name} are printed in another way since it was altered"


def _looks_alike(before: TypeState, now: TypeState) -> bool:
    if before.kind == now.kind == _ENUM:  # labels may be added
        return all(now.parts.get(oid) == label for oid, label in before.parts.items())
    return before == dataclasses.replace(now, name=before.name)


def types_of(table: TableState, types: Types) -> set[int]:
    """OIDs of the types that a table's columns are made of; of those that are known."""
    oids = {column.type_oid for column in table.columns.values()}
    return {found for oid in oids for found in reached(oid, types)}


def reached(oid: int, types: Types) -> set[int]:
    """OIDs of a type and of all that it is made of; of those that are known."""
    found: set[int] = set()
    waiting = [oid]
    while waiting:
        at = waiting.pop()
        if at in types and at not in found:
            found.add(at)
            waiting += types[at].uses
    return found
