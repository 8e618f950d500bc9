"""Describe a table as the catalogue of either product has it."""

import dataclasses
from typing import Self

from gaussdecode.model.columns import Reading


@dataclasses.dataclass(frozen=True, slots=True)
class CatalogColumn:
    """One column, as the catalogue has it now.

    Attributes:
        name: name of the column.
        number: attnum.
        is_toastable: its values may be stored out of line, and then not be sent.
        type_text: the type with its modifier, ``numeric(10,2)``.
        is_not_null: declared so.
        is_generated: stored generated.
        key_position: place in the primary key from 0, or None.
        type_oid: type OID of the type; 0 where nobody asked.
        type_modifier: type modifier of the column, -1 for none.
        constant: text of the value that rows from before the column was added have in it; None for NULL,
            and where nobody knows.
    """

    name: str
    number: int
    is_toastable: bool
    type_text: str
    is_not_null: bool
    is_generated: bool
    key_position: int | None
    type_oid: int = 0
    type_modifier: int = -1
    constant: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class CatalogTable:
    """One table, as the catalogue has it now.

    Attributes:
        oid: pg_class.oid.
        schema: name.
        name: name of the table.
        kind: pg_class.relkind.
        identity: pg_class.relreplident.
        columns: columns by number.
        identity_index: columns of the index under REPLICA IDENTITY USING INDEX, where known.
        reading: facts about the numbers of columns; None without any.
    """

    oid: int
    schema: str
    name: str
    kind: str
    identity: str
    columns: tuple[CatalogColumn, ...]
    identity_index: tuple[str, ...] = ()
    reading: Reading | None = None

    @classmethod
    def missing(cls, schema: str, name: str) -> Self:
        """The record of a table that no longer exists; its OID is 0."""
        return cls(0, schema, name, "", "", ())

    @property
    def primary_key(self) -> tuple[str, ...]:
        """Names of its columns in key order; empty without a primary key."""
        found = [(c.key_position, c.name) for c in self.columns if c.key_position is not None]
        return tuple(name for _, name in sorted(found))

    def column(self, name: str) -> CatalogColumn | None:
        """The column of this name."""
        return next((column for column in self.columns if column.name == name), None)
