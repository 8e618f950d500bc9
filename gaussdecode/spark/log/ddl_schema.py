"""Follow a DDL command: make the schema that a table's next rows will have. Pure.

Given a schema version whose attribute numbers are known, and a command's columns. Nothing is guessed:
where the command does not tell what the next rows will have, there is no new schema. The next rows
bring it.
"""

import dataclasses
import hashlib
from collections.abc import Sequence
from typing import Any, Final

from gaussdecode.model.ddl_text import adds, has_word, retypes
from gaussdecode.model.names import safe_columns
from gaussdecode.model.seal import canonical_json
from gaussdecode.model.title import split_title, table_title
from gaussdecode.model.types import ColumnType, Kind, column_type, is_built_in
from gaussdecode.spark.log.ddl import DdlColumn, DdlEvent
from gaussdecode.spark.log.schema import Column, TableSchema, match_columns, why_inexact

ADD: Final = "add-column"
DROP: Final = "drop-column"
RENAME: Final = "rename"
RETYPE: Final = "retype"
COLUMN_KINDS: Final = (ADD, DROP, RENAME, RETYPE)
ARROW: Final = {
    Kind.BOOL: "bool",
    Kind.INT16: "int16",
    Kind.INT32: "int32",
    Kind.INT64: "int64",
    Kind.FLOAT32: "float",
    Kind.FLOAT64: "double",
    Kind.DATE: "date32[day]",
    Kind.TIMESTAMP: "timestamp[us]",
    Kind.TIMESTAMPTZ: "timestamp[us, tz=UTC]",
    Kind.STRING: "string",
    Kind.BINARY: "binary",
    Kind.INTERVAL: "struct<months: int32, days: int32, micros: int64>",
}
"""Arrow types, as schema files spell them; those with parameters are in `arrow_text`."""

Changes = dict[str, str]
"""Names of the columns that a change is about, by its kind; for messages."""


@dataclasses.dataclass(frozen=True, slots=True)
class Followed:
    """What a command means for a table's columns.

    Attributes:
        changes: what it changed, by kind; empty for nothing.
        schema: the schema of the table after it; None if it changed nothing, or if that is not known.
        why: why the schema is not known; None if it is.
    """

    changes: Changes
    schema: TableSchema | None = None
    why: str | None = None


def follow(before: TableSchema, event: DdlEvent) -> Followed:
    """Make the schema of a table after a command.

    Args:
        before: schema of the table's rows; not one of several sources.
        event: a command on the table with this OID.
    """
    numbers = [column.number for column in before.columns]
    if event.columns is None:
        return Followed({})
    if before.unknown is not None or any(number is None or number < 1 for number in numbers):
        return Followed({}, why="the attribute numbers of its columns are not known")
    columns = _shown(before, event.columns)
    changes = _changes(before, columns)
    if not changes:
        return Followed({})
    why = _why_unknown(before, event, columns)
    if why is not None:
        return Followed(changes, why=why)
    schema = _schema(before, event, columns)
    why = why_inexact(before, schema)
    return Followed(changes, schema if why is None else None, why)


def renamed(before: TableSchema, namespace: str, name: str) -> TableSchema:
    """The schema of a table after it got another name or schema."""
    title = table_title(namespace, name)
    return _identified(dataclasses.replace(before, title=title, name=name))


def changes_between(before: TableSchema, after: TableSchema) -> Changes:
    """What differs between two versions of one table whose columns can be matched, by kind."""
    matched = match_columns(before, after)
    old = {column.name: column for column in before.columns}
    pairs = [(old[matched[c.name]], c) for c in after.columns if c.name in matched]
    kept = set(matched.values())
    return _named(
        added=[c.true_name for c in after.columns if c.name not in matched],
        dropped=[c.true_name for c in before.columns if c.name not in kept],
        renamed=[(a.true_name, b.true_name) for a, b in pairs if a.true_name != b.true_name],
        retyped=[b.true_name for a, b in pairs if _differs(a, b)],
    )


def _differs(old: Column, new: Column) -> bool:
    if old.type_oid and new.type_oid:
        return (old.type_oid, old.modifier) != (new.type_oid, new.modifier)
    return (old.type, old.spelled) != (new.type, new.spelled)


def record_of(schema: TableSchema) -> dict[str, Any]:  # Any: JSON
    """A schema in the form of a schema file, as `TableSchema.from_record` reads it."""
    namespace, name = split_title(schema.title)
    true_names = {column.name: column.true_name for column in schema.columns}
    return {
        "schema": namespace,
        "name": name,
        "oid": schema.oid,
        "key": [true_names[key] for key in schema.key] or None,
        "columns": [
            {
                "name": column.true_name,
                "landed": column.name,
                "type": column.server_type,
                "type_oid": column.type_oid,
                "type_modifier": column.modifier,
                "arrow": column.type,
                "identity": column.identity,
                "attribute_number": column.number,
                **({} if column.constant is None else {"constant": column.constant}),
            }
            for column in schema.columns
        ],
    }


def arrow_text(held: ColumnType) -> str:
    """The Arrow type of a column, as schema files spell it."""
    if held.kind is Kind.LIST and held.element is not None:
        element = _decimal(held) if held.element is Kind.DECIMAL else ARROW[held.element]
        return f"list<element: {element}>"
    return _decimal(held) if held.kind is Kind.DECIMAL else ARROW[held.kind]


def _decimal(held: ColumnType) -> str:
    return f"decimal128({held.precision}, {held.scale})"


def _shown(before: TableSchema, columns: Sequence[DdlColumn]) -> list[DdlColumn]:
    """The columns that the stream shows: those of the rows, and new ones.

    Where rows lack a column with a smaller number, a publication lists its columns: it shows no new ones.
    Generated columns are shown only where the rows have them.
    """
    known = {column.number or 0 for column in before.columns}
    newest = max(known, default=0)
    others = [c for c in columns if c.number not in known and c.generated is None]
    is_listed = any(c.number < newest for c in others)
    added = set() if is_listed else {c.number for c in others}
    return [column for column in columns if column.number in known | added]


def _changes(before: TableSchema, columns: Sequence[DdlColumn]) -> Changes:
    old = {column.number: column for column in before.columns}
    now = {column.number for column in columns}
    pairs = [(old[c.number], c) for c in columns if c.number in old]
    return _named(
        added=[c.name for c in columns if c.number not in old],
        dropped=[c.true_name for c in before.columns if c.number not in now],
        renamed=[(a.true_name, c.name) for a, c in pairs if a.true_name != c.name],
        retyped=[c.name for a, c in pairs if _is_retyped(a, c)],
    )


def _named(
    *,
    added: Sequence[str],
    dropped: Sequence[str],
    renamed: Sequence[tuple[str, str]],
    retyped: Sequence[str],
) -> Changes:
    pairs = [f"{old} to {new}" for old, new in renamed]
    found = {ADD: added, DROP: dropped, RENAME: pairs, RETYPE: retyped}
    return {kind: ", ".join(names) for kind, names in found.items() if names}


def _is_retyped(old: Column, new: DdlColumn) -> bool:
    if old.type_oid:
        return (old.type_oid, old.modifier) != (new.type_oid, new.modifier)
    return not is_built_in(new.type_oid) or (old.server_type, old.modifier) != (
        column_type(new.type_oid, new.modifier, None)[1],
        new.modifier,
    )


def _why_unknown(before: TableSchema, event: DdlEvent, columns: Sequence[DdlColumn]) -> str | None:
    """Why a command does not tell what the next rows will have; None if it does."""
    old = {column.number: column for column in before.columns}
    for column in columns:
        held = old.get(column.number)
        if (held is None or _is_retyped(held, column)) and not is_built_in(column.type_oid):
            return f"how column {column.name} of type {column.type} lands is not known"
        if held is None and not _is_known_before(event, column):
            return f"column {column.name} may have values in older rows, from a default"
        if held is not None and _is_retyped(held, column) and not _keeps_values(event, column):
            return (
                f"column {column.name} may have been converted with USING, and older rows have to be read "
                "again: gaussdecode snapshot"
            )
    return _why_other_key(before, event, columns)


def _is_known_before(event: DdlEvent, column: DdlColumn) -> bool:
    """Whether it is known what older rows have in a new column: a constant, or NULL.

    NULL, if the statement adds it without a default, which it might also have dropped again.
    """
    if column.number in (event.constants or {}):
        return True
    is_plain = column.default is None and column.identity is None
    return (
        is_plain and adds(event.statement, column.name) and not has_word(event.statement, "DEFAULT")
    )


def _keeps_values(event: DdlEvent, column: DdlColumn) -> bool:
    """Whether rows have, in a column of another type, the values that their own conversion gives."""
    return not event.is_rewritten or retypes(event.statement, column.name)


def _why_other_key(
    before: TableSchema, event: DdlEvent, columns: Sequence[DdlColumn]
) -> str | None:
    numbers = {column.name: column.number for column in before.columns}
    key = {numbers[name] for name in before.key}
    primary = {column.number for column in columns if column.key_position is not None}
    is_full = all(column.identity for column in before.columns)
    is_by_all = is_full and len(key) == len(before.columns)  # a key of all columns looks like FULL
    if is_full != (event.replica_identity == "f") and not is_by_all:
        return "the replica identity was changed"
    wanted = {"d": primary, "f": primary, "n": set()}.get(event.replica_identity or "", key)
    if wanted != key or not key <= {column.number for column in columns}:
        return "the key was changed"
    return None


def _schema(before: TableSchema, event: DdlEvent, columns: Sequence[DdlColumn]) -> TableSchema:
    old = {column.number: column for column in before.columns}
    landed = safe_columns([column.name for column in columns])
    made = tuple(
        _column(event, column, name, old.get(column.number))
        for column, name in zip(columns, landed, strict=True)
    )
    numbers = {column.name: column.number for column in before.columns}
    names = {column.number: column.name for column in made}
    key = tuple(names[numbers[name]] for name in before.key)
    return _identified(dataclasses.replace(before, key=key, columns=made))


def _identified(schema: TableSchema) -> TableSchema:
    """The schema under the id of its content."""
    content = canonical_json(record_of(schema))
    return dataclasses.replace(schema, schema_id=hashlib.sha256(content).hexdigest()[:16])


def _column(event: DdlEvent, column: DdlColumn, name: str, old: Column | None) -> Column:
    if old is not None and not _is_retyped(old, column):
        return dataclasses.replace(old, name=name, true_name=column.name)
    held, spelled = column_type(column.type_oid, column.modifier, None)
    return Column(
        name,
        arrow_text(held),
        column.number,
        event.replica_identity == "f" if old is None else old.identity,
        column.name,
        spelled,
        column.modifier,
        (event.constants or {}).get(column.number) if old is None else old.constant,
        column.type_oid,
    )
