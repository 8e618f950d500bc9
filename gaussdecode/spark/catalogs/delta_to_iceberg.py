"""Describe a version of a Delta table in Iceberg's classes: columns, partition, files."""

import json
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from pyiceberg.conversions import to_bytes
from pyiceberg.exceptions import ResolveError
from pyiceberg.expressions.literals import literal
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import promote
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from gaussdecode.spark.catalogs.positions import Published
from gaussdecode.spark.log.place import parquet_file
from gaussdecode.spark.target.delta_log import Snapshot
from gaussdecode.spark.target.delta_schema import delta_type

Json = dict[str, Any]  # decoded JSON
_NO_ID: Final = -1
_AT_A_TIME: Final = 16
_SIMPLE: Final[Mapping[str, PrimitiveType]] = {
    "boolean": BooleanType(),
    "byte": IntegerType(),
    "short": IntegerType(),
    "integer": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "binary": BinaryType(),
    "date": DateType(),
    "timestamp_ntz": TimestampType(),
    "timestamp": TimestamptzType(),
}


def fields_of(one: Published, delta: Snapshot) -> list[NestedField]:
    """Columns that a table shows of a version."""
    fields = json.loads(delta.metadata["schemaString"])["fields"]
    return [_field(of) for of in fields if not (one.hides and of["name"].startswith("gd_"))]


def unseen_fields(one: Published, delta: Snapshot, shown: Collection[str]) -> list[NestedField]:
    """Columns that are in the files but not shown by the table.

    pyiceberg reads no file with a column that it cannot map. These are our hidden columns and, if older
    files exist, dropped columns.
    """
    fields = json.loads(delta.metadata["schemaString"])["fields"]
    found = {of["name"]: of for of in fields}
    if delta.version > 0:
        places = [one.place / path for path in delta.adds]
        with ThreadPoolExecutor(_AT_A_TIME, "footers") as pool:
            for schema in pool.map(lambda place: parquet_file(place).schema_arrow, places):
                for field in schema:
                    of = {"name": field.name, "type": delta_type(field.type), "metadata": {}}
                    found.setdefault(field.name, of)
    return [_field(of) for name, of in found.items() if name not in shown]


def _field(of: Json) -> NestedField:
    doc = of["metadata"].get("comment") or None
    return NestedField(_NO_ID, of["name"], _type(of["type"]), required=False, doc=doc)


def _type(of: str | Json) -> IcebergType:
    """Convert a type of a Delta schema to Iceberg's."""
    if isinstance(of, str):
        if of.startswith("decimal("):
            precision, _, scale = of[8:-1].partition(",")
            return DecimalType(int(precision), int(scale))
        return _SIMPLE[of]
    if of["type"] == "array":
        return ListType(_NO_ID, _type(of["elementType"]), element_required=False)
    if of["type"] == "map":
        key, value = _type(of["keyType"]), _type(of["valueType"])
        return MapType(_NO_ID, key, _NO_ID, value, value_required=False)
    return StructType(*map(_field, of["fields"]))


def is_promoted(old: IcebergType, new: IcebergType) -> bool:
    """Whether files of a type can be read as another one."""
    if isinstance(old, PrimitiveType) and isinstance(new, PrimitiveType) and old != new:
        try:
            return promote(old, new) == new
        except ResolveError:
            return False
    return _spelled(old) == _spelled(new)


def _spelled(of: IcebergType) -> str:
    """A type as text, without field numbers."""
    if isinstance(of, ListType):
        return f"list<{_spelled(of.element_type)}>"
    if isinstance(of, MapType):
        return f"map<{_spelled(of.key_type)}, {_spelled(of.value_type)}>"
    if isinstance(of, StructType):
        return f"struct<{', '.join(f'{f.name}: {_spelled(f.field_type)}' for f in of.fields)}>"
    return str(of)


def partition_of(delta: Snapshot) -> list[str]:
    """Columns that the files of a version are partitioned by."""
    return list(delta.metadata.get("partitionColumns") or ())


def partition_columns(metadata: TableMetadata) -> list[str]:
    """Columns that the files of a table are partitioned by."""
    return [
        field.name if isinstance(field.transform, IdentityTransform) else str(field)
        for field in metadata.spec().fields
    ]


def data_file(path: str, add: Json, metadata: TableMetadata) -> DataFile:
    """Describe a file for Iceberg, from the Delta log."""
    schema, stats = metadata.schema(), json.loads(add.get("stats") or "{}")
    fields = {field.name: field for field in schema.fields}
    rows = stats["numRecords"]
    values = [
        _partition_value(add["partitionValues"].get(field.name), schema.find_type(field.source_id))
        for field in metadata.spec().fields
    ]
    nulls = {
        fields[name].field_id: count
        for name, count in stats.get("nullCount", {}).items()
        if name in fields and isinstance(count, int)
    }
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(*values),
        record_count=rows,
        file_size_in_bytes=add["size"],
        value_counts=dict.fromkeys(nulls, rows),
        null_value_counts=nulls,
        lower_bounds=_bounds(stats.get("minValues", {}), fields),
        upper_bounds=_bounds(stats.get("maxValues", {}), fields),
    )
    file.spec_id = metadata.default_spec_id
    return file


def _bounds(values: Json, fields: Mapping[str, NestedField]) -> dict[int, bytes]:
    found = {}
    for name, value in values.items():
        of = fields[name].field_type if name in fields else None
        if isinstance(of, DateType):
            found[fields[name].field_id] = to_bytes(of, literal(value).to(of).value)
        elif isinstance(of, IntegerType | LongType | StringType):
            found[fields[name].field_id] = to_bytes(of, value)
    return found


def _partition_value(text: str | None, of: IcebergType) -> Any:  # Any: of each type
    if text is None or isinstance(of, StringType):
        return text
    if isinstance(of, TimestampType | TimestamptzType):
        text = text.replace(" ", "T") + ("+00:00" if isinstance(of, TimestamptzType) else "")
    return literal(text).to(of).value
