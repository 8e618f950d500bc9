"""Make the schema and the statistics of a Delta table's log.

Given Arrow schemas and the footers of Parquet files. Pure.
"""

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from gaussdecode.errors import LandingError

Json = dict[str, Any]  # decoded JSON
_SIMPLE: Final[dict[pa.DataType, str]] = {
    pa.bool_(): "boolean",
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp_ntz",
    pa.timestamp("us", tz="UTC"): "timestamp",
}
_ODD: Final = frozenset(" ,;{}()\n\t=")
"""Characters that a column's name may have only where the table maps names."""
_MAPPING: Final = "delta.columnMapping"
_COLUMNS: Final = 32
"""The first columns have statistics, as with other writers."""
_LONGEST: Final = 64
"""Longer texts have none: a bound that is cut would have to be rounded."""


def delta_type(of: pa.DataType) -> str | Json:
    """Name a type as in a Delta schema.

    Raises:
        LandingError: Delta has no such type.
    """
    if of in _SIMPLE:
        return _SIMPLE[of]
    if pa.types.is_decimal(of):
        return f"decimal({of.precision},{of.scale})"
    if pa.types.is_list(of):
        element = delta_type(of.value_type)
        return {"type": "array", "elementType": element, "containsNull": of.value_field.nullable}
    if pa.types.is_map(of):
        return {
            "type": "map",
            "keyType": delta_type(of.key_type),
            "valueType": delta_type(of.item_type),
            "valueContainsNull": True,
        }
    if pa.types.is_struct(of):
        return {"type": "struct", "fields": [_field(field.name, field.type) for field in of]}
    raise LandingError(f"no type of Delta Lake holds {of}")


def _field(name: str, of: pa.DataType) -> Json:
    return {"name": name, "type": delta_type(of), "nullable": True, "metadata": {}}


def delta_schema(columns: pa.Schema, before: str | None = None) -> tuple[str, Json]:
    """The schema of a table as text, and the properties that it needs.

    Args:
        columns: columns of the files and, if partitioned, those that only paths have.
        before: the table's schema so far; its comments and mapped-name numbers stay.
    """
    old = {} if before is None else {f["name"]: f for f in json.loads(before)["fields"]}
    fields = [_field(field.name, field.type) for field in columns]
    for field in fields:
        field["metadata"] = dict(old.get(field["name"], {}).get("metadata", {}))
    is_mapped = any(_MAPPING + ".id" in of.get("metadata", {}) for of in old.values())
    properties: Json = {}
    if is_mapped or any(_ODD & set(name) for name in _names(fields)):
        last = _number(fields, max((_numbers(list(old.values()))), default=0))
        properties = {f"{_MAPPING}.mode": "name", f"{_MAPPING}.maxColumnId": str(last)}
    return json.dumps({"type": "struct", "fields": fields}, separators=(",", ":")), properties


def _names(fields: Sequence[Json]) -> list[str]:
    """Names of all columns, those of structs too."""
    found = [field["name"] for field in fields]
    for field in fields:
        if isinstance(field["type"], dict) and field["type"]["type"] == "struct":
            found += _names(field["type"]["fields"])
    return found


def _numbers(fields: Sequence[Json]) -> list[int]:
    """Column numbers that are in use."""
    found = [f["metadata"].get(f"{_MAPPING}.id", 0) for f in fields]
    for field in fields:
        if isinstance(field["type"], dict) and field["type"]["type"] == "struct":
            found += _numbers(field["type"]["fields"])
    return found


def _number(fields: Sequence[Json], last: int) -> int:
    """Number every column and name it in files by its own name; return the last number."""
    for field in fields:
        if f"{_MAPPING}.id" not in field["metadata"]:
            last += 1
            field["metadata"] |= {f"{_MAPPING}.id": last, f"{_MAPPING}.physicalName": field["name"]}
        if isinstance(field["type"], dict) and field["type"]["type"] == "struct":
            last = _number(field["type"]["fields"], last)
    return last


def protocol_of(schema: str, properties: Mapping[str, str], *, with_vectors: bool) -> Json:
    """Protocol features that readers and writers of a table must support."""
    readers = set()
    if '"timestamp_ntz"' in schema:
        readers.add("timestampNtz")
    if f"{_MAPPING}.mode" in properties:
        readers.add("columnMapping")
    if with_vectors:
        readers.add("deletionVectors")
    if not readers:
        return {"minReaderVersion": 1, "minWriterVersion": 2}
    of = sorted(readers)
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": of,
        "writerFeatures": of,
    }


def joined(old: Json, new: Json) -> Json:
    """Unite two protocols; features are never removed here."""
    if not old:
        return new
    result: Json = {
        name: max(old[name], new[name]) for name in ("minReaderVersion", "minWriterVersion")
    }
    for name in ("readerFeatures", "writerFeatures"):
        found = {*(old.get(name) or ()), *(new.get(name) or ())}
        if found:
            result[name] = sorted(found)
    return result


def partition_value(text: str | None, of: pa.DataType) -> str | None:
    """Convert a partition value from its path form to the log's form."""
    if text is not None and of == pa.bool_():
        return text.lower()
    if text is not None and pa.types.is_timestamp(of):
        return text.partition("+")[0]
    return text


def statistics(metadata: pq.FileMetaData) -> str:
    """Row count of a file and, per column, NULLs and bounds, as JSON for the log."""
    found: dict[str, Json] = {"minValues": {}, "maxValues": {}, "nullCount": {}}
    groups = range(metadata.num_row_groups)
    width = metadata.num_columns if metadata.num_row_groups else 0
    for at in range(min(width, _COLUMNS)):
        name = metadata.schema.column(at).path
        columns = [metadata.row_group(group).column(at).statistics for group in groups]
        if "." in name or not all(of is not None and of.has_null_count for of in columns):
            continue
        found["nullCount"][name] = sum(of.null_count for of in columns)
        valued = [of for of in columns if of.has_min_max]
        if len(valued) < sum(of.num_values > 0 for of in columns) or not valued:
            continue
        low, high = min(of.min for of in valued), max(of.max for of in valued)
        if _is_bound(low) and _is_bound(high):
            found["minValues"][name], found["maxValues"][name] = _json(low), _json(high)
    return json.dumps({"numRecords": metadata.num_rows, **found}, separators=(",", ":"))


def _is_bound(value: Any) -> bool:  # Any: whatever a footer has
    if isinstance(value, bool | dt.datetime):
        return False
    return isinstance(value, int | dt.date) or (isinstance(value, str) and len(value) <= _LONGEST)


def _json(value: Any) -> Any:  # Any: see above
    return value.isoformat() if isinstance(value, dt.date) else value
