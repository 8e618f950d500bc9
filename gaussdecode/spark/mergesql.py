"""MERGE of changes into a table of Iceberg, as text of SQL. Pure strings.

Values that were not sent stay as they are, with their texts in ``gd_raw``; what the table does not know either
stays in ``gd_unchanged``. Where these two are kept flat, as JSON, they are read and written as such.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from gaussdecode.spark.events import ACTION, PUT, REMOVE
from gaussdecode.spark.schema import OLD_PREFIX, RAW, UNCHANGED
from gaussdecode.spark.sqltext import literal, quoted

Bounds = Mapping[str, tuple[int, int]]
Values = Mapping[str, Sequence[int | str]]

NESTED: Final = {UNCHANGED: "array<string>", RAW: "map<string,string>"}
"""Our columns that are nested, with their types in SQL."""


def merge_text(
    table: str,
    source: str,
    columns: Sequence[str],
    *,
    on: Sequence[str],
    unsent: Collection[str],
    bounds: Bounds,
    values: Values,
    flat: Collection[str],
) -> str:
    """The statement.

    Args:
        table: its name, quoted.
        source: name of the view with the changes.
        columns: of the changes, but ``gd_action``.
        on: rows are the same where these are.
        unsent: columns whose values a row that is there keeps, where ``gd_unchanged`` names them.
        bounds: least and greatest value of columns, in every row that the changes are about.
        values: of columns, all those in rows that the changes are about.
        flat: columns of `NESTED` that the table keeps as JSON.
    """
    updates = ", ".join(f"t.{quoted(c)} = {_updated(c, unsent, flat)}" for c in columns)
    inserted = ", ".join(_written(c, f"s.{quoted(c)}", flat) for c in columns)
    return (
        f"MERGE INTO {table} AS t USING {source} AS s ON {_same_row(on, bounds, values)} "  # noqa: S608
        f"WHEN MATCHED AND s.{ACTION} = {REMOVE} THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {updates} "
        f"WHEN NOT MATCHED AND s.{ACTION} = {PUT} THEN "
        f"INSERT ({', '.join(map(quoted, columns))}) VALUES ({inserted})"
    )


def rename_text(table: str, renamed: Mapping[str, str], flat: Collection[str]) -> str:
    """The statement that gives columns their new names in `NESTED`; a second time it changes nothing."""
    both = {**renamed, **{OLD_PREFIX + a: OLD_PREFIX + b for a, b in renamed.items()}}
    cases = " ".join(f"WHEN {literal(a)} THEN {literal(b)}" for a, b in both.items())
    name = f"CASE name {cases} ELSE name END"
    held = {c: f"from_json({c}, '{NESTED[c]}')" if c in flat else c for c in NESTED}
    names = _written(UNCHANGED, f"transform({held[UNCHANGED]}, name -> {name})", flat)
    texts = _written(RAW, f"transform_keys({held[RAW]}, (name, _) -> {name})", flat)
    return (
        f"UPDATE {table} SET {UNCHANGED} = {names}, {RAW} = {texts} "  # noqa: S608 - our own text
        f"WHERE {UNCHANGED} IS NOT NULL OR {RAW} IS NOT NULL"
    )


def _same_row(on: Sequence[str], bounds: Bounds, values: Values) -> str:
    """When a row of the table is the row of a change.

    Bounds and values follow from the key; said of the table alone they let files be skipped, and spare
    rows that no change is about the join, in which they would be sorted.
    """
    same = [f"t.{quoted(name)} = s.{quoted(name)}" for name in on]
    spans = [
        f"t.{quoted(name)} >= {low} AND t.{quoted(name)} <= {high}"
        for name, (low, high) in sorted(bounds.items())
    ]
    among = [
        f"t.{quoted(name)} IN ({', '.join(map(_constant, found))})"
        for name, found in sorted(values.items())
    ]
    return " AND ".join([*same, *spans, *among])


def _constant(value: int | str) -> str:
    return literal(value) if isinstance(value, str) else str(value)


def _updated(column: str, unsent: Collection[str], flat: Collection[str]) -> str:
    """What a column is after an update: as it was where that was not sent."""
    new, held = f"s.{quoted(column)}", f"t.{quoted(column)}"
    if not unsent:
        return _written(column, new, flat)
    old = f"from_json({held}, '{NESTED[column]}')" if column in flat else held
    if column == UNCHANGED:  # what the table does not know either
        return _written(column, f"nullif(array_intersect({new}, {old}), array())", flat)
    if column == RAW:
        kept = f"map_filter({old}, (name, _) -> array_contains(s.{UNCHANGED}, name))"
        both = f"map_concat(coalesce({new}, map()), {kept})"
        is_old = f"s.{UNCHANGED} IS NOT NULL AND {held} IS NOT NULL"
        found = f"CASE WHEN {is_old} AND cardinality({both}) > 0 THEN {both} ELSE {new} END"
        return _written(column, found, flat)
    if column not in unsent:
        return new
    return f"CASE WHEN array_contains(s.{UNCHANGED}, {literal(column)}) THEN {held} ELSE {new} END"


def _written(column: str, value: str, flat: Collection[str]) -> str:
    return f"to_json({value})" if column in flat else value
