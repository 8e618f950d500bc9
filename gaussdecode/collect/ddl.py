"""Read the content of DDL messages into the columns of ``gd_ddl``.

The messages are those of `source.postgresql.ddl`, but anybody may emit some with the same prefix. A
content that is not as it should be gives NULL in every column; it is itself in the file all the same.
This is Python for each message, once for a row group: DDL commands are few.

From GaussDB and openGauss a content is what the server sent:

| sent by | content |
|---|---|
| GaussDB, enable-ddl-decoding | ``{"TDDL": "statement"}``; with enable-ddl-json-format ``{"JDDL": tree}`` |
| openGauss 6.0, mppdb_decoding | ``prefix: ..., relid N, ... content: tree``, and after a line end ``decode to: statement, [owner ...]`` |
| openGauss 6.0, sql_decoding | the same, beginning with ``message: prefix`` |
| openGauss 6.0, before each DROP of a table or type | the same without the second line; the content is ``Drop table command start`` |
"""

import json
import re
from typing import Any, Final

import pyarrow as pa

from gaussdecode.protocol.gaussdb.ddltree import command_tag, name_of, write_sql

_VERSION: Final = 1
_MOST_BYTES: Final = 32 << 20  # above what the triggers write (16 MiB); more is somebody else's

_SERIAL: Final = re.compile(
    rb"(?:message: prefix|prefix:) .*?, relid (?P<oid>[0-9]+), .*?content: "
    rb"(?:Drop (?P<dropped>[a-z ]+) command start|(?P<tree>.*)\ndecode to ?: (?P<sql>.*), \[owner .*\])",
    re.DOTALL,
)
Record = dict[str, Any]  # Any: JSON

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
    """One row of `DDL_TYPE`; NULL for what cannot be read."""
    try:
        record = _record(content) if len(content) <= _MOST_BYTES else None
        if record is not None:
            row = pa.array([record], DDL_TYPE)
            if row.field("command_tag").null_count == 0:
                return row
    except (ValueError, TypeError, OverflowError, RecursionError, pa.ArrowException):
        pass
    return pa.nulls(1, DDL_TYPE)


def _record(content: bytes) -> Record | None:
    """The columns that a content says, by their names; None where it is of no known form."""
    serial = _SERIAL.fullmatch(content)
    if serial is not None and serial["dropped"] is not None:
        tag = f"DROP {serial['dropped'].decode().upper()}"
        return {"command_tag": tag, "oid": int(serial["oid"]) or None, "statement_is_cut": False}
    if serial is not None:
        sql = serial["sql"].decode()
        try:
            schema, name = name_of(json.loads(serial["tree"]))
        except (ValueError, AttributeError):
            schema, name = None, None
        oid = int(serial["oid"]) or None
        return _statement(sql) | {"schema_name": schema, "object_name": name, "oid": oid}
    record = json.loads(content)
    if not isinstance(record, dict):
        return None
    if record.get("version") == _VERSION:
        return record
    if isinstance(record.get("TDDL"), str):
        return _statement(record["TDDL"])
    if isinstance(record.get("JDDL"), dict):
        schema, name = name_of(record["JDDL"])
        return _statement(write_sql(record["JDDL"])) | {"schema_name": schema, "object_name": name}
    return None


def _statement(sql: str) -> Record:
    return {"command_tag": command_tag(sql), "statement": sql, "statement_is_cut": False}
