"""Databases in other encodings than UTF-8: every byte lands, translated or escaped."""

import re
from collections.abc import Callable

import psycopg
import pytest
from kit import landing
from kit.daemon import Daemon
from kit.postgres import Database, Postgres

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]

# Encoding, Python's codec for what translates, a table's name, and values as the server holds
# them, of which the last ones have a byte that is no letter.
CASES = {
    "LATIN1": ("latin-1", b"caf\xe9", [b"plain", b"na\xefve", b"\\x81 \xff", b"\x81"]),
    "WIN1252": ("cp1252", b"t\x81\xe9", [b"\x80uro", b"a\x81b", b"\\\x81", b'{"\x81"}']),
    "EUC_JP": ("euc_jp", b"\xb4\xc1\xbb\xfa", [b"\xa4\xa2", b"\x8e\xb1", b"\xa9\xfe\xb0\xa1"]),
    "SQL_ASCII": ("utf-8", b"n\xe9\\x81", [b"\xc3\xa9", b"caf\xe9", b"\xff\\xff"]),
    "UTF8": ("utf-8", b"\xc3\xa9\\x81", [b"\xc3\xa9", b"\\x81"]),
}  # fmt: skip


def _literal(raw: bytes) -> bytes:
    return b"'" + raw.replace(b"'", b"''") + b"'"


def _bytes_of(text: str, codec: str) -> bytes:
    """Undo the escapes of ``gd_raw``."""
    found = b""
    for part in re.findall(r"\\\\|\\x[0-9a-f]{2}|[^\\]+", text):
        if part == "\\\\":
            found += b"\\"
        elif part.startswith("\\x"):
            found += bytes.fromhex(part[2:])
        else:
            found += part.encode(codec)
    return found


@pytest.mark.parametrize("encoding", CASES)
def test_every_byte_lands(encoding: str, postgres_15: Postgres, make_daemon: MakeDaemon) -> None:
    """Rows of before the slot and changes, in a table whose name is of such bytes too."""
    codec, name, values = CASES[encoding]
    database = Database(postgres_15, f"kit_{encoding.lower()}", encoding=encoding)
    table = b'public."' + name + b'"'
    with psycopg.connect(database.dsn, autocommit=True, client_encoding="SQL_ASCII") as session:
        run = session.pgconn.exec_

        def execute(command: bytes) -> list[bytes]:
            result = run(command)
            assert not result.error_message, result.error_message
            return [result.get_value(row, 0) or b"" for row in range(result.ntuples)]

        execute(
            b"CREATE TABLE " + table + b' (k text PRIMARY KEY, "c' + name + b'" text, a text[])'
        )
        rows = [
            b"(" + _literal(v) + b", " + _literal(v) + b", ARRAY[" + _literal(v) + b"])"
            for v in values
        ]
        execute(b"INSERT INTO " + table + b" VALUES " + b", ".join(rows))
        database.create_slot()
        config = {"snapshot": {"mode": "initial", "verify": "checksums"}}
        with make_daemon(database, config=config) as daemon:
            for value in values:
                execute(b"UPDATE " + table + b" SET k = 'new ' || k WHERE k = " + _literal(value))
            execute(b"INSERT INTO " + table + b" VALUES " + b", ".join(rows))
            daemon.catch_up()
            daemon.wait_while_running(lambda: _has_landed(daemon), "the snapshot")
            assert daemon.stop() == 0
        server = execute(
            b"SELECT encode(convert_to(k, getdatabaseencoding()), 'hex') FROM " + table
        )
    landed = landing.read(daemon.root)
    (schema,) = {change.schema.table for change in landed.changes}
    assert schema[0] == "public"
    state: set[bytes] = set()
    for change in landed.effective():
        cells = {**change.new, **change.raw}
        key, column, listed = (cells[c] for c in change.schema.names.values())
        raw = "k" in change.raw
        found = _bytes_of(key, codec) if raw else key.encode(codec)
        original = found.removeprefix(b"new ")
        assert original in values
        if change.op == "U":
            state.remove(original)
        state.add(found)
        assert (_bytes_of(column, codec) if raw else column.encode(codec)) == original
        assert raw == isinstance(listed, str)
    assert {value.hex().encode() for value in state} == set(server)
    assert _name_of(schema[1]) == name.decode(codec, "surrogateescape")
    if encoding != "UTF8":
        assert any(change.raw for change in landed.changes) == (encoding != "LATIN1")
    database.drop()


def _has_landed(daemon: Daemon) -> bool:
    tables = (daemon.status() or {}).get("snapshot") or {}
    return bool(tables) and all(t["state"] in {"done", "failed"} for t in tables.values())


def _name_of(spelled: str) -> str:
    """Undo the spelling of a name."""

    def byte(match: re.Match[str]) -> str:
        value = int(match[1], 16)
        return chr(value) if value < 0x80 else chr(0xDC00 + value)

    return re.sub(r"\\x([89a-f][0-9a-f]|5c)", byte, spelled)
