"""Join the schemas that several sources have of one table, or say why they cannot be one table.

Within a source an attribute number identifies a column; between sources it says nothing. So each
source's versions are followed by number, and columns with the same name in the current versions are one
column of the table. A column that a source lacks is NULL in its rows. Integers of several widths use
the widest. Pure.

Nothing is guessed: other types, other keys, or a column that was renamed on some sources only, are
errors. An error may resolve itself later: the check looks at the schemas that have landed up to an
entry.
"""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gaussdecode.model.names import safe_columns
from gaussdecode.model.seal import canonical_json
from gaussdecode.model.title import split_title
from gaussdecode.spark.log.schema import Column, TableSchema, match_columns, why_unknown

WHOLE_NUMBERS: Final = ("int16", "int32", "int64")
"""Types that hold each other, the widest last."""
_SHOWN: Final = "and change a row of it there, so that the stream shows it"

Names = dict[str, str]


class DiffersError(Exception):
    """Versions of several sources cannot be one table; the text says why."""


def joined(versions: Mapping[str, TableSchema], before: TableSchema | None = None) -> TableSchema:
    """Make one schema from those of several sources.

    Args:
        versions: current version of each source that has the table, by source name.
        before: their previous joint schema; its columns go before new ones.

    Raises:
        DiffersError: they cannot be one table.
    """
    # By name, not as they landed: the same versions are the same schema, and the same error.
    versions = {source: versions[source] for source in sorted(versions)}
    parts = tuple(versions.values())
    key = _common_key(versions)
    columns: dict[str, dict[str, Column]] = {}
    for called in _called_now(versions, before):
        columns.update((name, {}) for name in called.values())
    for part in parts:
        for column in part.columns:
            columns.setdefault(column.true_name, {})[str(part.source)] = column
    landed = dict(zip(columns, safe_columns(list(columns)), strict=True))
    schema = TableSchema(
        "",
        parts[0].title,
        parts[0].name,
        0,
        tuple(landed[name] for name in key),
        tuple(_column(name, landed[name], of) for name, of in columns.items()),
        has_source=True,
        parts=parts,
    )
    content = canonical_json(record_of(schema))
    return dataclasses.replace(schema, schema_id=hashlib.sha256(content).hexdigest()[:16])


def record_of(schema: TableSchema) -> dict[str, Any]:  # Any: JSON
    """The record that a target keeps of a joint schema, beside its parts."""
    namespace, name = split_title(schema.title)
    true_names = {column.name: column.true_name for column in schema.columns}
    return {
        "schema": namespace,
        "name": name,
        "oid": 0,
        "key": [true_names[name] for name in schema.key] or None,
        "has_source": True,
        "versions": {part.source: part.schema_id for part in schema.parts},
        "columns": [
            {
                "name": c.true_name,
                "landed": c.name,
                "arrow": c.type,
                "identity": c.identity,
                "type": c.server_type,
                "type_modifier": c.modifier,
            }
            for c in schema.columns
        ],
    }


def _column(name: str, landed: str, members: Mapping[str, Column]) -> Column:
    is_sent = any(column.identity for column in members.values())
    of = _type(name, members)
    typed = {(c.server_type, c.modifier) for c in members.values() if c.type == of}
    server_type, modifier = typed.pop() if len(typed) == 1 else ("", -1)
    return Column(landed, of, None, is_sent, name, server_type, modifier)


def _type(name: str, members: Mapping[str, Column]) -> str:
    types = {column.type for column in members.values()}
    if len(types) == 1:
        return types.pop()
    if types <= set(WHOLE_NUMBERS):
        return max(types, key=WHOLE_NUMBERS.index)
    told = ", ".join(f"{column.type} on source {source}" for source, column in members.items())
    raise DiffersError(
        f"column {name!r} has types that no column of one table holds alike: {told}. Give it the same type "
        f"on all of them, {_SHOWN}"
    )


def _common_key(versions: Mapping[str, TableSchema]) -> Sequence[str]:
    keys = {source: _key_of(version) for source, version in versions.items()}
    (first, key), *others = keys.items()
    for source, other in others:
        if set(other) != set(key):
            raise DiffersError(
                f"rows of source {first} are told apart by {_spelled(key)}, those of source {source} by "
                f"{_spelled(other)}. Give the table the same key on all of them, {_SHOWN}"
            )
    return key


def _key_of(version: TableSchema) -> tuple[str, ...]:
    names = {column.name: column.true_name for column in version.columns}
    return tuple(names[name] for name in version.key)


def _spelled(key: Sequence[str]) -> str:
    return f"key ({', '.join(key)})" if key else "no key"


def _called_now(versions: Mapping[str, TableSchema], before: TableSchema | None) -> list[Names]:
    """Current names of each previous column, by each source that still has it; true names."""
    if before is None:
        return []
    now = {str(part.source): _names_now(part, versions) for part in before.parts}
    found = []
    for column in before.columns:
        called = {
            source: names[column.true_name]
            for source, names in now.items()
            if column.true_name in names
        }
        if len(set(called.values())) > 1:
            told = ", ".join(f"{name!r} on source {source}" for source, name in called.items())
            raise DiffersError(
                f"column {column.true_name!r} was renamed on some sources only: it is {told}. Rename it on all "
                f"of them, {_SHOWN}"
            )
        found.append(called)
    return found


def _names_now(part: TableSchema, versions: Mapping[str, TableSchema]) -> Names:
    """True names of a version's columns in the newer version of its source, by their old names."""
    version = versions[str(part.source)]
    if why_unknown(part, version) is not None:  # nothing is left of the rows before
        return {}
    before = {column.name: column.true_name for column in part.columns}
    after = {column.name: column.true_name for column in version.columns}
    matched = match_columns(part, version)
    return {before[was]: after[name] for name, was in matched.items()}
