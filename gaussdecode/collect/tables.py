"""Choose the directory, file names and Arrow schema of each relation version.

A `Landed` is one table under one schema. It is made when the stream first describes a relation version.
Two versions with the same content share it, so that a repeated description does not close a file.
"""

import dataclasses
import json
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Protocol, Self

import pyarrow as pa

from gaussdecode.collect.arrow import (
    SYSTEM_COLUMNS,
    arrow_type,
    system_schema,
    table_schema,
    with_source,
)
from gaussdecode.collect.ddl_states import DdlStates
from gaussdecode.collect.descriptions import Descriptions
from gaussdecode.model.columns import (
    AMBIGUOUS,
    CONTRADICTED,
    DROPPED,
    GONE,
    NO_CATALOG,
    Known,
    Placed,
    Reading,
    WireColumn,
    place,
    placed_as,
    unplaced,
)
from gaussdecode.model.relation import Column, Relation, ReplicaIdentity

CONSTANT: Final = "constant"  # in a column of a schema file
_NO_ELEMENT: Final = 0
_PACKING: Final = 1  # zlib's level; names and types repeat themselves


class CatalogColumn(Protocol):
    """A column as the catalogue describes it."""

    @property
    def number(self) -> int:
        """Attribute number."""

    @property
    def name(self) -> str:
        """Of the column."""

    @property
    def is_toastable(self) -> bool:
        """Its values may be stored out of line, and then not be sent."""

    @property
    def type_text(self) -> str:
        """The type with its modifier, ``numeric(10,2)``."""

    @property
    def type_oid(self) -> int:
        """Of the type; 0 where nobody asked."""

    @property
    def type_modifier(self) -> int:
        """Of the column, -1 for none."""

    @property
    def is_generated(self) -> bool:
        """Stored generated."""

    @property
    def key_position(self) -> int | None:
        """Place in the primary key from 0, or None."""

    @property
    def constant(self) -> str | None:
        """Text of the value that rows from before the column was added have in it."""


class CatalogTable(Protocol):
    """A table as the catalogue describes it; it may be newer than the stream."""

    @property
    def oid(self) -> int:
        """pg_class.oid; 0 where there is no such table any more."""

    @property
    def reading(self) -> Reading | None:
        """What it tells of the numbers of columns; None where nothing."""

    @property
    def columns(self) -> Sequence[CatalogColumn]:
        """By number."""


class Schemas(Protocol):
    """Keeps schema files; finds a schema again by its content."""

    def schema_id_for(
        self,
        table: str,
        record: dict[str, Any],  # Any: JSON
    ) -> tuple[str, bool]:
        """The schema_id of a description, and whether the table changes over to it."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Landed:
    """One table under one schema.

    Attributes:
        directory: encoded ``<schema>.<name>``, or the name of a system table.
        schema_id: schema id of its file in ``schemas/``.
        schema: Arrow schema of its files.
        names: names of the columns in the files, in wire order.
        relation: relation as the stream described it; None for system tables.
        skipped: index of every column that does not land (skip-generated-columns).
        order: rises with every new one.
    """

    directory: str
    schema_id: str
    schema: pa.Schema
    names: tuple[str, ...]
    relation: Relation | None
    order: int
    skipped: frozenset[int] = frozenset()

    @property
    def columns(self) -> tuple[Column, ...]:
        """The relation's columns; none for a system table."""
        return () if self.relation is None else self.relation.columns

    @property
    def updates_may_change_key(self) -> bool:
        """Under FULL the stream does not say which columns are the key."""
        return self.relation is not None and self.relation.identity is ReplicaIdentity.FULL

    def kinds(self) -> tuple[list[tuple[int, int]], int]:
        """Kinds for an accumulator, and how many of them are identity columns."""
        if self.relation is None:
            types = [of for _, of in SYSTEM_COLUMNS[self.directory]]
            old = []
        else:
            types = [column.type for column in self.columns]
            old = [column.type for column in self.columns if column.is_identity]
        pairs = [(int(of.kind), int(of.element or _NO_ELEMENT)) for of in (*types, *old)]
        return pairs, len(old)


@dataclasses.dataclass(frozen=True, slots=True)
class Packed:
    """The data from which a `Landed` is made again, for a quiet table.

    Attributes:
        definition: JSON of the relation as the stream described it, compressed.
        schema_id: schema id of its file; a catalogue that knows more by now is not asked again.
        order: order of the `Landed`.
        skipped: index of every column that does not land.
    """

    definition: bytes
    schema_id: str
    order: int
    skipped: frozenset[int]

    @classmethod
    def of(cls, landed: Landed, definition: bytes) -> Self:
        """Make it small."""
        small = zlib.compress(definition, _PACKING)
        return cls(small, landed.schema_id, landed.order, landed.skipped)


Described = Sequence[CatalogColumn | None]
"""The catalogue's description of each column of a relation, in its order; None where unknown."""


def described(catalog: CatalogTable | None, numbers: Sequence[int | None]) -> Described:
    """Find columns in the catalogue by their numbers; names may have changed hands."""
    known = {} if catalog is None else {column.number: column for column in catalog.columns}
    return [None if number is None else known.get(number) for number in numbers]


def key_of(
    relation: Relation, catalog: CatalogTable | None, columns: Described
) -> list[str] | None:
    """The columns that identify a row, by their true names.

    The replica identity as sent; under FULL, which marks all columns, the primary key of
    the catalogue. None where there is neither, or not all of it is sent: the table is a multiset.
    """
    if relation.identity is ReplicaIdentity.NOTHING:
        return None
    if relation.identity is not ReplicaIdentity.FULL:
        if relation.identity is ReplicaIdentity.DEFAULT and _hides_key(relation, catalog, columns):
            return None
        return [column.name for column in relation.columns if column.is_identity] or None
    wanted = () if catalog is None else [c for c in catalog.columns if c.key_position is not None]
    found = [
        (known.key_position, column.name)
        for column, known in zip(relation.columns, columns, strict=True)
        if known is not None and known.key_position is not None
    ]
    return [name for _, name in sorted(found)] if found and len(found) == len(wanted) else None


def _hides_key(relation: Relation, catalog: CatalogTable | None, columns: Described) -> bool:
    """Whether a list of columns leaves out some of the primary key.

    Publications of inserts alone may; the rest of the key, as marked in the stream, then
    identifies nothing.
    """
    if catalog is None or catalog.reading is None or not catalog.reading.may_hide:
        return False
    sent = {known.number for known in columns if known is not None}
    names = {column.name for column in relation.columns}
    return any(
        column.key_position is not None and column.number not in sent and column.name not in names
        for column in catalog.columns
    )


def generated_columns(
    relation: Relation, catalog: CatalogTable | None, numbers: Sequence[int | None]
) -> frozenset[int]:
    """Index of every stored generated column that is not part of the key.

    Without the catalogue none is known, and all land.
    """
    columns = described(catalog, numbers)
    kept = set(key_of(relation, catalog, columns) or ())
    return frozenset(
        index
        for index, (column, known) in enumerate(zip(relation.columns, columns, strict=True))
        if known is not None and known.is_generated and column.name not in kept
    )


def schema_record(
    relation: Relation,
    names: Sequence[str],
    catalog: CatalogTable | None,
    placed: Placed,
    skipped: frozenset[int] = frozenset(),
    constants: Mapping[int, str] = MappingProxyType({}),
) -> dict[str, Any]:  # Any: JSON
    """Describe a schema for ``schemas/<table>/<schema_id>.json``.

    `constants` are those that an earlier description of the table had, by number: the catalogue forgets
    them when the table is written anew, and they go on to hold for rows from before.
    """
    columns = described(catalog, placed.numbers)
    rows = zip(relation.columns, names, placed.numbers, columns, strict=True)
    return {
        "schema": relation.namespace,
        "name": relation.name,
        "oid": relation.oid if relation.is_oid_known else 0,
        "identity": relation.identity.value,
        "key": key_of(relation, catalog, columns),
        "columns": [
            _column_record(column, landed, number, known, constants)
            for index, (column, landed, number, known) in enumerate(rows)
            if index not in skipped
        ],
        "dropped": sorted(placed.known.dropped),
        "unknown": placed.reason,
    }


def _column_record(
    column: Column,
    landed: str,
    number: int | None,
    known: CatalogColumn | None,
    constants: Mapping[int, str],
) -> dict[str, Any]:  # Any: JSON
    is_same = known is not None and (
        (known.type_oid, known.type_modifier) == (column.type_oid, column.type_modifier)
    )
    constant = None if known is None else known.constant
    if constant is None and number is not None:
        constant = constants.get(number)
    record = {
        "name": column.name,
        "landed": landed,
        "type": column.type_name,
        "type_oid": column.type_oid,
        "type_modifier": column.type_modifier,
        "type_text": known.type_text if known is not None and is_same else None,
        "arrow": str(arrow_type(column.type)),
        "identity": column.is_identity,
        "toastable": known.is_toastable if known is not None and is_same else None,
        "attribute_number": number,
    }
    return record if constant is None else {**record, CONSTANT: constant}


def constants_of(record: dict[str, Any] | None, oid: int) -> dict[int, str]:  # Any: JSON
    """What a schema file says that rows from before a column have in it, by number."""
    if record is None or record.get("oid") != oid:
        return {}
    found = ((column.get("attribute_number"), column.get(CONSTANT)) for column in record["columns"])
    return {number: text for number, text in found if number is not None and text is not None}


def known_of(record: dict[str, Any] | None, oid: int) -> Known:  # Any: JSON
    """What a schema file proves of the table with this OID."""
    if record is None or record.get("oid") != oid:
        return Known()
    numbers = frozenset(column.get("attribute_number") for column in record["columns"])
    if None in numbers:
        return Known()
    return Known(numbers, frozenset(record.get("dropped", ())))


def system_record(table: str, schema: pa.Schema) -> dict[str, Any]:  # Any: JSON
    """Describe the schema of a system table."""
    columns = [{"name": field.name, "arrow": str(field.type)} for field in schema]
    return {
        "schema": None,
        "name": table,
        "oid": 0,
        "identity": "n",
        "key": None,
        "columns": columns,
    }


_MOMENTS: Final = (0.01, 0.05, 0.25)
_SECONDS: Final = 10.0
"""See `Tables._proved`; both arbitrary."""


class Tables:
    """Makes a `Landed` for every relation version.

    Args:
        schemas: the landing's schemas.
        directory_of: encodes schema and name.
        safe_names: renames columns that Spark could not tell apart.
        look_up: asks the catalogue about a relation; None where it cannot tell, with why.
        earlier: the last schema of a directory that landed before this stream; None for none.
        skip_generated: stored generated columns do not land.
        is_wanted: whether a table lands at all.
        source: source of the rows, where a landing has several: then they say so, and so does the schema, whose
            OID and attribute numbers are of that source alone.
        titles: titles of tables by OID, as they were called where the stream begins.
        ddl: columns of tables as DDL of the stream tells them.

    Attributes:
        descriptions: tables that the stream has described.
        ddl: the same.
        is_wanted: the same.
    """

    def __init__(
        self,
        schemas: Schemas,
        directory_of: Callable[[str, str], str],
        safe_names: Callable[[Sequence[str]], list[str]],
        look_up: Callable[[Relation], CatalogTable | None],
        earlier: Callable[[str], dict[str, Any] | None] = lambda _: None,  # Any: JSON
        *,
        skip_generated: bool = False,
        is_wanted: Callable[[Relation], bool] = lambda _: True,
        source: str | None = None,
        titles: Mapping[int, str] = MappingProxyType({}),
        ddl: DdlStates | None = None,
    ) -> None:
        self._source = source
        self.ddl = ddl or DdlStates()
        self.descriptions = Descriptions(titles)
        self.is_wanted = is_wanted
        self._schemas = schemas
        self._directory_of = directory_of
        self._safe_names = safe_names
        self._look_up = look_up
        self._earlier = earlier
        self._known: dict[str, tuple[int, Known]] = {}  # by directory, of the table with this OID
        self._constants: dict[str, dict[int, str]] = {}  # likewise
        self._skip_generated = skip_generated
        self._order = 0
        self._patient_at = 0.0
        self._current: dict[str, Landed] = {}

    def system(self, table: str) -> Landed:
        """A system table."""
        schema = self._with_source(system_schema(table))
        schema_id, _ = self._schemas.schema_id_for(table, system_record(table, schema))
        return Landed(table, schema_id, schema, (), None, 0)

    def find(self, relation: Relation) -> Landed:
        """Directory and schema for rows of `relation`; the same object while its content is the same."""
        names = self._safe_names([column.name for column in relation.columns])
        directory = self._directory_of(relation.namespace, relation.name)
        self.descriptions.note_rows(directory, relation)
        catalog, placed = self._by_ddl(directory, relation, *self._proved(directory, relation))
        skipped = frozenset[int]()
        if self._skip_generated:
            skipped = generated_columns(relation, catalog, placed.numbers)
        told = self.ddl.constants(relation.oid) if relation.is_oid_known else {}
        constants = {**told, **self._constants[directory]}
        record = schema_record(relation, names, catalog, placed, skipped, constants)
        self._constants[directory] = constants_of(record, record["oid"])
        numbers = {column["attribute_number"] for column in record["columns"]} - {None}
        self.ddl.described(record["oid"], numbers - self._constants[directory].keys())
        if self._source is not None:
            record["source"] = self._source
        schema_id, _ = self._schemas.schema_id_for(directory, record)
        current = self._current.get(directory)
        if current is not None and current.schema_id == schema_id:
            return current
        self._order += 1
        landed = Landed(
            directory,
            schema_id,
            self._with_source(table_schema(relation.columns, names, skipped)),
            tuple(names),
            relation,
            self._order,
            skipped,
        )
        self._current[directory] = landed
        return landed

    def _proved(self, directory: str, relation: Relation) -> tuple[CatalogTable | None, Placed]:
        """Ask the catalogue, and again after a moment where it contradicts the stream.

        A commit is sent once it is durable, and seen by others only after that: a table or a column that was made
        a moment ago may not be there yet. Where waiting did not help, nobody waits for a while: much later
        than its changes, the catalogue contradicts them for good.
        """
        catalog = self._look_up(relation)
        placed = self._place(directory, relation, catalog)
        if time.monotonic() < self._patient_at:
            return catalog, placed
        for seconds in _MOMENTS:
            if placed.reason not in (CONTRADICTED, DROPPED, GONE):
                return catalog, placed
            time.sleep(seconds)
            catalog = self._look_up(relation)
            placed = self._place(directory, relation, catalog)
        if placed.reason in (CONTRADICTED, DROPPED, GONE):
            self._patient_at = time.monotonic() + _SECONDS
        return catalog, placed

    def _by_ddl(
        self, directory: str, relation: Relation, catalog: CatalogTable | None, placed: Placed
    ) -> tuple[CatalogTable | None, Placed]:
        """Let DDL of the stream choose where the catalogue leaves several ways, or cannot tell."""
        wire = _wire(relation)
        numbers = self.ddl.numbers(relation.oid, wire) if relation.is_oid_known else None
        if numbers is None:
            return catalog, placed
        if placed.reason is None and placed.numbers != numbers:
            self.ddl.forget(relation.oid)  # the catalogue proves that it is not true
        chosen = None
        if placed.reason == AMBIGUOUS:
            assert catalog is not None
            assert catalog.reading is not None
            chosen = placed_as(wire, catalog.reading, placed.known, numbers)
        elif placed.reason in (DROPPED, GONE, NO_CATALOG):
            catalog = None  # of another table, or empty
            if not placed.known.dropped & set(numbers) and self.ddl.is_whole(relation.oid, numbers):
                chosen = Placed(numbers, None, Known(frozenset(numbers), placed.known.dropped))
        if chosen is None:
            return catalog, placed
        self.ddl.believed(relation.oid)
        self._known[directory] = (relation.oid, chosen.known)
        return catalog, chosen

    def forget(self, landed: Landed) -> None:
        """Let a table go that is quiet; its next version makes another `Landed`."""
        if self._current.get(landed.directory) is landed:
            del self._current[landed.directory]

    def unpack(self, packed: Packed) -> tuple[Landed, bytes]:
        """Make a `Landed` again; gives it, and the definition."""
        definition = zlib.decompress(packed.definition)
        relation = Relation.from_record(json.loads(definition))
        names = self._safe_names([column.name for column in relation.columns])
        landed = Landed(
            self._directory_of(relation.namespace, relation.name),
            packed.schema_id,
            self._with_source(table_schema(relation.columns, names, packed.skipped)),
            tuple(names),
            relation,
            packed.order,
            packed.skipped,
        )
        self._current.setdefault(landed.directory, landed)
        return landed, definition

    def _with_source(self, schema: pa.Schema) -> pa.Schema:
        return schema if self._source is None else with_source(schema)

    def _place(self, directory: str, relation: Relation, catalog: CatalogTable | None) -> Placed:
        """Find the numbers of a relation's columns, and remember what that proves."""
        oid = relation.oid if relation.is_oid_known else 0
        before, known = self._known.get(directory, (None, Known()))
        if before is None:
            earlier = self._earlier(directory)
            known = known_of(earlier, oid)
            self._constants[directory] = constants_of(earlier, oid)
        elif before != oid:
            known = Known()
            self._constants[directory] = {}
        placed = _placed(relation, catalog, known)
        self._known[directory] = (oid, placed.known)
        return placed


def _placed(relation: Relation, catalog: CatalogTable | None, known: Known) -> Placed:
    count = len(relation.columns)
    if catalog is None:
        return unplaced(count, NO_CATALOG, known)
    if not catalog.oid:
        return unplaced(count, DROPPED, known)
    if catalog.reading is None or (relation.is_oid_known and catalog.oid != relation.oid):
        return unplaced(count, GONE, known)
    return place(_wire(relation), catalog.reading, known)


def _wire(relation: Relation) -> list[WireColumn]:
    return [WireColumn(c.name, c.type_oid, c.type_modifier) for c in relation.columns]
