"""Tests for `gaussdecode.collect.ddl`: contents of DDL messages, of ours and of anybody."""

import json

import pyarrow as pa
import pytest

from gaussdecode.collect.ddl import DDL_TYPE, ddl_columns

COLUMN = {
    "attribute_number": 1, "name": "id", "type": "integer", "type_oid": 4294967295, "type_modifier": -1,
    "not_null": True, "default": None, "generated": None, "identity": "d", "key_position": 1,
}  # fmt: skip
RECORD = {
    "version": 1, "command_tag": "CREATE TABLE", "object_type": "table", "schema_name": "public",
    "object_name": 'o "d', "object_identity": 'public."o ""d"', "oid": 4294967295, "statement": "CREATE …",
    "statement_is_cut": False, "columns": [COLUMN], "objects": [{"a": 1}], "dropped": [],
}  # fmt: skip


def _read(*contents: bytes) -> list[dict[str, object]]:
    columns = ddl_columns(pa.array(contents, pa.binary()))
    rows: list[dict[str, object]] = pa.table(columns).to_pylist()
    return rows


def test_every_field_is_read() -> None:
    """In the types of the page; what a table does not have is NULL."""
    (row, short) = _read(
        json.dumps(RECORD).encode(),
        b'{"version": 1, "command_tag": "GRANT", "columns": null, "error": "22021"}',
    )
    assert row == {name: RECORD[name] for name in (field.name for field in DDL_TYPE)}
    assert short == {**dict.fromkeys(row), "command_tag": "GRANT"}


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"\xff\xfe", b"[]", b"null", b"1", b"{}", b'{"version": 2, "command_tag": "X"}',
        b'{"version": 1}', b'{"version": 1, "command_tag": 7}', b"[" * 100_000,
        b'{"version": 1, "command_tag": "\\ud800"}',
        b'{"version": 1, "command_tag": "X", "oid": "x"}',
        b'{"version": 1, "command_tag": "X", "oid": 1e400}',
        b'{"version": 1, "command_tag": "X", "oid": 99999999999999999999}',
        b'{"version": 1, "command_tag": "X", "columns": {"a": 1}}',
        b'{"version": 1, "command_tag": "X", "columns": ["a"]}',
        b'{"version": 1, "command_tag": "X", "oid": ' + b"9" * 5000 + b"}",
        b" " * (33 << 20),
    ],
    ids=lambda content: repr(content[:40]),
)  # fmt: skip
def test_what_is_no_ddl_is_null(content: bytes) -> None:
    """And the rows beside it are what they were."""
    good = json.dumps(RECORD).encode()
    first, bad, last = _read(good, content, good)
    assert first == last == {name: RECORD[name] for name in first}
    assert set(bad.values()) == {None}


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b'{"TDDL": "DROP TABLE s.t"}', ("DROP TABLE", None, None, None, "DROP TABLE s.t")),
        (
            b'{"JDDL": {"fmt": "DROP TABLE %{identity}D", "identity": {"schema_name": "s", "object_name": "t"}}}',
            ("DROP TABLE", "s", "t", None, "DROP TABLE s.t"),
        ),
        (
            (
                b'prefix: deparse, lsn: 0/1, relid 5, cmdtype: Simple, size: 3, content: {"fmt": "x"}\n'
                b"decode to: CREATE INDEX i\n ON t (a), [owner none]"
            ),
            ("CREATE INDEX", None, None, 5, "CREATE INDEX i\n ON t (a)"),
        ),
        (
            (
                b"message: prefix p, relid 0, cmdtype: Drop, sz: 3 content: no tree\n"
                b"decode to : DROP TABLE t, [owner ann]"
            ),
            ("DROP TABLE", None, None, None, "DROP TABLE t"),
        ),
        (
            (
                b'prefix: deparse, lsn: 1, relid 7, cmdtype: Drop Table End, size: 9, content: {"fmt": "x", '
                b'"objtype": "table", "objidentity": "s.\\"T\\"\\".u\\""}\ndecode to: DROP table s.x, [owner none]'
            ),
            ("DROP TABLE", "s", 'T".u', 7, "DROP table s.x"),
        ),
        (
            (
                b'prefix: deparse, lsn: 1, relid 7, cmdtype: Drop Table End, size: 9, content: {"fmt": "x", '
                b'"objtype": "function", "objidentity": "s.f(integer)"}\ndecode to: DROP function s.f(integer), [owner none]'
            ),
            ("DROP FUNCTION", None, None, 7, "DROP function s.f(integer)"),
        ),
        (
            b"prefix: deparse, lsn: 1, relid 7, cmdtype: Drop Table, size: 25, content: Drop table command start",
            ("DROP TABLE", None, None, 7, None),
        ),
        (
            b"message: prefix deparse, relid 7, cmdtype: Drop Type, sz: 2 content: Drop type command start",
            ("DROP TYPE", None, None, 7, None),
        ),
    ],
)
def test_what_gaussdb_and_opengauss_send(content: bytes, found: tuple[object, ...]) -> None:
    """The statement, its kind, and the object where the server says it."""
    (row,) = _read(content)
    names = ("command_tag", "schema_name", "object_name", "oid", "statement")
    assert tuple(row[name] for name in names) == found
    assert row["statement_is_cut"] is False
