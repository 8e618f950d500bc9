"""Describe tables as the stream defines them.

A `Relation` is what one Relation message said, with the types resolved. A `version`
numbers the different descriptions of one connection from 1; rows are stamped with it.
"""

import dataclasses
import enum
from typing import Any, Final, Self

from gaussdecode.model.types import ColumnType


class ReplicaIdentity(enum.StrEnum):
    """Which old columns the server sends (the letter of pg_class.relreplident)."""

    DEFAULT = "d"
    NOTHING = "n"
    FULL = "f"
    INDEX = "i"


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """One attribute of a relation.

    Attributes:
        name: the true name on the server.
        type_oid: pg_type.oid.
        type_modifier: pg_attribute.atttypmod, -1 for none.
        type_name: the server's spelling without modifier, such as ``character varying``.
        type: how its values are held.
        is_identity: its old value is sent (part of the key, or any column under FULL).
    """

    name: str
    type_oid: int
    type_modifier: int
    type_name: str
    type: ColumnType
    is_identity: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Relation:
    """One description of one table.

    Attributes:
        version: number of this description in its connection, from 1.
        oid: pg_class.oid, or a number of our own where nothing tells it.
        namespace: schema name; ``pg_catalog`` where the wire sends an empty string.
        name: table name.
        identity: replica identity.
        columns: columns in wire order.
        is_filtered: the white list leaves it out.
        is_oid_known: the OID is the server's.
    """

    version: int
    oid: int
    namespace: str
    name: str
    identity: ReplicaIdentity
    columns: tuple[Column, ...]
    is_filtered: bool = False
    is_oid_known: bool = True

    def to_record(self) -> dict[str, Any]:  # Any: JSON
        """Make it fit for JSON."""
        columns = [{**_fields(column), "type": column.type.to_record()} for column in self.columns]
        return {**_fields(self), "columns": columns}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:  # Any: JSON
        """Rebuild what `to_record` wrote."""
        columns = tuple(
            Column(**{**column, "type": ColumnType.from_record(column["type"])})
            for column in record["columns"]
        )
        identity = ReplicaIdentity(record["identity"])
        return cls(**{**record, "columns": columns, "identity": identity})


def _fields(record: Relation | Column) -> dict[str, Any]:  # Any: of many types
    """Its fields, not copied: `dataclasses.asdict` takes ten times as long."""
    return {name: getattr(record, name) for name in record.__slots__}


PG_CATALOG: Final = "pg_catalog"
