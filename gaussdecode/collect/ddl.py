"""Read the content of DDL messages into the columns of ``gd_ddl``.

The messages are those of `source.postgresql.ddl`, but anybody may emit some with the same prefix. A
content that is not as it should be gives NULL in every column; it is itself in the file all the same.
This is Python for each message, once for a row group: DDL commands are few.
"""

import json
from typing import Final

import pyarrow as pa

_VERSION: Final = 1
_MOST_BYTES: Final = 32 << 20  # above what the triggers write (16 MiB); more is somebody else's

_COLUMN: Final = pa.struct(
    [
        ("attribute_number", pa.int32()),
        ("name", pa.string()),
        ("type", pa.string()),
        ("type_oid", pa.int64()),
        ("type_modifier", pa.int32()),
        ("not_null", pa.bool_()),
        ("default", pa.string()),
        ("generated", pa.string()),
        ("identity", pa.string()),
        ("key_position", pa.int32()),
    ]
)
DDL_TYPE: Final = pa.struct(
    [
        ("command_tag", pa.string()),
        ("object_type", pa.string()),
        ("schema_name", pa.string()),
        ("object_name", pa.string()),
        ("object_identity", pa.string()),
        ("oid", pa.int64()),
        ("statement", pa.string()),
        ("statement_is_cut", pa.bool_()),
        ("columns", pa.list_(pa.field("element", _COLUMN))),
    ]
)
"""The columns that are read from a content; `command_tag` is NULL only where it cannot be read."""


def ddl_columns(contents: pa.Array) -> dict[str, pa.Array]:
    """Read contents of messages; gives the columns of `DDL_TYPE` by their names."""
    rows = [_read(content.as_py()) for content in contents]
    read = pa.concat_arrays([pa.nulls(0, DDL_TYPE), *rows])
    names = [field.name for field in DDL_TYPE]
    return dict(zip(names, read.flatten(), strict=True))


def _read(content: bytes) -> pa.Array:
    """One row of `DDL_TYPE`; NULL for what no trigger of ours writes."""
    try:
        record = json.loads(content) if len(content) <= _MOST_BYTES else None
        if isinstance(record, dict) and record.get("version") == _VERSION:
            row = pa.array([record], DDL_TYPE)
            if row.field("command_tag").null_count == 0:
                return row
    except (ValueError, TypeError, OverflowError, RecursionError, pa.ArrowException):
        pass
    return pa.nulls(1, DDL_TYPE)
