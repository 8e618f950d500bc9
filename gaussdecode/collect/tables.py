"""Where the rows of each relation version land.

A `Landed` is one table under one schema: its directory, its names, its Arrow schema. It
is made when the stream first describes a relation version; two versions whose content
is the same share it, so that a repeated description does not close a file.
"""

import dataclasses
import json
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, Self

import pyarrow as pa

from gaussdecode.collect.arrow import (
    MESSAGES,
    SYSTEM_COLUMNS,
    TRANSACTIONS,
    arrow_type,
    system_schema,
    table_schema,
)
from gaussdecode.model.relation import Column, Relation, ReplicaIdentity

_NO_ELEMENT: Final = 0
_PACKING: Final = 1  # zlib's level; names and types repeat themselves


class CatalogColumn(Protocol):
    """What the catalogue knows of a column."""

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
    def is_generated(self) -> bool:
        """Stored generated."""


class CatalogTable(Protocol):
    """What the catalogue knows of a table; it may be newer than the stream."""

    @property
    def columns(self) -> Sequence[CatalogColumn]:
        """By number."""

    @property
    def primary_key(self) -> Sequence[str]:
        """Names in key order; empty without one."""


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
        schema_id: of its file in ``schemas/``.
        schema: Arrow schema of its files.
        names: what each column is called in the files, in wire order.
        relation: as the stream described it; None for system tables.
        skipped: index of every column that does not land (skip-generated-columns).
        order: rises with every new one; files are closed in this order.
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
    """What makes a `Landed` again, for a table that is quiet.

    Attributes:
        definition: JSON of the relation as the stream described it, compressed.
        schema_id: of its file; a catalogue that knows more by now is not asked again.
        order: of the `Landed`.
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


def key_of(relation: Relation, catalog: CatalogTable | None) -> list[str] | None:
    """The columns that identify a row, by their true names.

    The replica identity as sent; under FULL, which marks all columns, the primary key of
    the catalogue. None where there is neither: the table is a multiset.
    """
    if relation.identity is ReplicaIdentity.NOTHING:
        return None
    if relation.identity is not ReplicaIdentity.FULL:
        return [column.name for column in relation.columns if column.is_identity] or None
    if catalog is None or not catalog.primary_key:
        return None
    names = {column.name for column in relation.columns}
    return list(catalog.primary_key) if names.issuperset(catalog.primary_key) else None


def generated_columns(relation: Relation, catalog: CatalogTable | None) -> frozenset[int]:
    """Index of every stored generated column that is not part of the key.

    Without the catalogue none is known, and all land.
    """
    if catalog is None:
        return frozenset()
    generated = {column.name for column in catalog.columns if column.is_generated}
    kept = set(key_of(relation, catalog) or ())
    return frozenset(
        index for index, column in enumerate(relation.columns) if column.name in generated - kept
    )


def schema_record(
    relation: Relation,
    names: Sequence[str],
    catalog: CatalogTable | None,
    skipped: frozenset[int] = frozenset(),
) -> dict[str, Any]:  # Any: JSON
    """Describe a schema for ``schemas/<table>/<schema_id>.json``."""
    known = {} if catalog is None else {column.name: column for column in catalog.columns}
    return {
        "schema": relation.namespace,
        "name": relation.name,
        "oid": relation.oid if relation.is_oid_known else 0,
        "identity": relation.identity.value,
        "key": key_of(relation, catalog),
        "columns": [
            _column_record(column, landed, known.get(column.name))
            for index, (column, landed) in enumerate(zip(relation.columns, names, strict=True))
            if index not in skipped
        ],
    }


def _column_record(
    column: Column, landed: str, known: CatalogColumn | None
) -> dict[str, Any]:  # Any: JSON
    return {
        "name": column.name,
        "landed": landed,
        "type": column.type_name,
        "type_oid": column.type_oid,
        "type_modifier": column.type_modifier,
        "type_text": None if known is None else known.type_text,
        "arrow": str(arrow_type(column.type)),
        "identity": column.is_identity,
        "toastable": None if known is None else known.is_toastable,
        "attribute_number": None if known is None else known.number,
    }


def system_record(table: str) -> dict[str, Any]:  # Any: JSON
    """Describe the schema of a system table."""
    columns = [{"name": field.name, "arrow": str(field.type)} for field in system_schema(table)]
    return {"schema": None, "name": table, "oid": 0, "identity": "n", "key": None,
            "columns": columns}  # fmt: skip


class Tables:
    """Makes a `Landed` for every relation version.

    Args:
        schemas: the landing's schemas.
        directory_of: encodes schema and name.
        safe_names: renames columns that Spark could not tell apart.
        look_up: asks the catalogue about a relation; None where it cannot tell.
        skip_generated: stored generated columns do not land.
        is_wanted: whether a table lands at all.

    Attributes:
        is_wanted: the same.
    """

    def __init__(
        self,
        schemas: Schemas,
        directory_of: Callable[[str, str], str],
        safe_names: Callable[[Sequence[str]], list[str]],
        look_up: Callable[[Relation], CatalogTable | None],
        *,
        skip_generated: bool = False,
        is_wanted: Callable[[Relation], bool] = lambda _: True,
    ) -> None:
        self.is_wanted = is_wanted
        self._schemas = schemas
        self._directory_of = directory_of
        self._safe_names = safe_names
        self._look_up = look_up
        self._skip_generated = skip_generated
        self._order = 0
        self._current: dict[str, Landed] = {}

    def system(self, table: str) -> Landed:
        """``gd_transactions`` or ``gd_messages``."""
        assert table in (TRANSACTIONS, MESSAGES)
        schema_id, _ = self._schemas.schema_id_for(table, system_record(table))
        schema = system_schema(table)
        return Landed(table, schema_id, schema, (), None, 0)

    def find(self, relation: Relation) -> Landed:
        """Where rows of `relation` land; the same object while its content is the same."""
        names = self._safe_names([column.name for column in relation.columns])
        directory = self._directory_of(relation.namespace, relation.name)
        catalog = self._look_up(relation)
        skipped = generated_columns(relation, catalog) if self._skip_generated else frozenset()
        record = schema_record(relation, names, catalog, skipped)
        schema_id, _ = self._schemas.schema_id_for(directory, record)
        current = self._current.get(directory)
        if current is not None and current.schema_id == schema_id:
            return current
        self._order += 1
        landed = Landed(
            directory, schema_id, table_schema(relation.columns, names, skipped), tuple(names),
            relation, self._order, skipped,
        )  # fmt: skip
        self._current[directory] = landed
        return landed

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
            self._directory_of(relation.namespace, relation.name), packed.schema_id,
            table_schema(relation.columns, names, packed.skipped), tuple(names),
            relation, packed.order, packed.skipped,
        )  # fmt: skip
        self._current.setdefault(landed.directory, landed)
        return landed, definition
