"""The server's own plain-text plug-in on the same WAL gives the same rows in the same order."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from kit import canon, oracle, testdecoding
from kit.daemon import Daemon
from kit.landing import Change
from kit.postgres import Database
from kit.testdecoding import PlainChange
from kit.values import ALL_TYPES, TYPE_DDL, nullable
from kit.workload import Workload

from gaussdecode.serve.outputs.registry import make_output
from gaussdecode.serve.reader import LandingReader

pytestmark = pytest.mark.integration
_BOOLEANS = {"true": "t", "false": "f"}


def _agrees(cell: oracle.Cell, text: str | None) -> bool:
    if cell.raw is None and isinstance(cell.value, bool):
        return canon.of_value(cell.value, cell.type) == _BOOLEANS.get(text or "")
    return cell.agrees(text)


def _compare(change: Change, plain: PlainChange) -> None:
    assert change.schema.table == plain.table
    assert change.op == plain.op
    assert change.unchanged <= plain.unchanged
    if plain.new is not None:
        new = oracle.new_row(change)
        for name, text in plain.new.items():
            assert _agrees(new[name], text), f"{plain.table}.{name}: {new[name]}, not {text!r}"
    old = oracle.old_row(change)
    if plain.op == "D" and plain.old is not None:
        assert old is not None
        for name, text in plain.old.items():
            assert _agrees(old[name], text), f"old {plain.table}.{name}: {old[name]}, not {text!r}"


@pytest.mark.parametrize("decoders", [1, 3])
def test_same_rows_in_the_same_order(
    database: Database, make_daemon: Callable[..., Daemon], decoders: int
) -> None:
    """Every change of test_decoding landed, at its place, with its values."""
    workload = Workload(database, 10 + decoders, sessions=4)
    workload.create()
    database.create_slot()
    plain_slot = f"{database.name}_plain"
    database.copy_slot(plain_slot, "test_decoding")
    config = {"decoding": {"parallel-decode-num": decoders}}
    with make_daemon(database, config=config) as daemon:
        workload.run(200)
        daemon.catch_up()
        assert daemon.stop() == 0
    landed = oracle.check(daemon.root, database)
    plain = list(testdecoding.take(database, plain_slot, oracle.OUTPUT_SETTINGS))
    assert len(landed.changes) == len(plain)
    for change, other in zip(landed.changes, plain, strict=True):
        _compare(change, other)


_MESSAGES_BEGIN = 17  # with skip-empty-xacts, earlier ones write no BEGIN before a message
_DOMAINS = {"c_positive", "c_label"}  # the stream has their base types


def _served(root: Path, plugin: str, options: dict[str, str | None]) -> list[bytes]:
    """Messages of everything that has landed."""
    output = make_output(plugin, options)
    reader = LandingReader(root)
    position = reader.beginning()
    lines = []
    for entry in reader.entries(position.n):
        for block in reader.blocks(entry, position):
            messages = output.write(block)
            start = 0
            for end in messages.ends.tolist():
                lines.append(messages.content[start:end])
                start = end
    return lines


def _change_everything(database: Database, rng: Random) -> None:
    """Insert, change and delete rows of all types, of odd names, of each identity, and a large value."""
    specs = [spec for spec in ALL_TYPES if spec.name not in _DOMAINS]
    for _ in range(60):
        values = [
            "NULL" if value is None else "'" + value.replace("'", "''") + f"'::{spec.type}"
            for spec in specs
            for value in [nullable(rng, spec.value)]
        ]
        names = ", ".join(spec.name for spec in specs)
        database.execute(f"INSERT INTO everything ({names}) VALUES ({', '.join(values)})")
    database.execute("UPDATE everything SET c_int2 = 7 WHERE id % 3 = 0")
    database.execute("DELETE FROM everything WHERE id % 7 = 0")
    floats = "1e15 1e14 123456789012345680 9007199254740993 1.5e-5 0.0001 1e-4 1e-37"
    for text in floats.split():
        database.execute(
            f"INSERT INTO everything (c_float8, c_float4) VALUES ({text}, {text}::real)"
        )
    database.execute("INSERT INTO \"Odd S\".keyed VALUES (1, 2, repeat('x', 9000), 'a')")
    database.execute('UPDATE "Odd S".keyed SET "order" = 3')
    database.execute('UPDATE "Odd S".keyed SET "Id" = 2')
    database.execute('DELETE FROM "Odd S".keyed')
    database.execute("INSERT INTO bare VALUES (1, NULL)")
    database.execute("CREATE TABLE later (id int)")
    for flags in ("", " RESTART IDENTITY", " CASCADE", " RESTART IDENTITY CASCADE"):
        database.execute(f"TRUNCATE bare{flags}")
    with database.connect() as session, session.transaction():
        session.execute("SELECT pg_logical_emit_message(true, 'a b', 'first')")
        session.execute("INSERT INTO bare VALUES (2, 'between')")
        session.execute("SELECT pg_logical_emit_message(false, 'outside', 'of it')")
        session.execute("SELECT pg_logical_emit_message(true, '', '\\xc3a9'::bytea)")
    database.execute("SELECT pg_logical_emit_message(false, 'outside', '')")
    database.execute("SELECT pg_logical_emit_message(true, 'alone', 'é')")


def test_served_bytes_are_the_servers_own(
    database: Database, make_daemon: Callable[..., Daemon]
) -> None:
    """What is written of a landing has the bytes of the server's own plug-ins, for all types."""
    database.execute(TYPE_DDL)
    columns = ", ".join(
        f"{spec.name} {spec.type}" for spec in ALL_TYPES if spec.name not in _DOMAINS
    )
    # Nothing out of line: under FULL, a value that was not sent lands from the old row.
    database.execute(
        f"CREATE TABLE everything (id serial PRIMARY KEY, {columns}) WITH (toast_tuple_target = 8160)"
    )
    database.execute("ALTER TABLE everything REPLICA IDENTITY FULL")
    database.execute('CREATE SCHEMA "Odd S"')
    database.execute(
        'CREATE TABLE "Odd S".keyed ("Id" int PRIMARY KEY, "order" int, large text, "a""é" text)'
    )
    database.execute('ALTER TABLE "Odd S".keyed ALTER large SET STORAGE EXTERNAL')
    database.execute("CREATE TABLE bare (a int, b text)")
    database.execute("ALTER TABLE bare REPLICA IDENTITY NOTHING")
    database.create_slot()
    plain_slot = f"{database.name}_plain"
    database.copy_slot(plain_slot, "test_decoding")
    database.copy_slot(f"{database.name}_pgoutput")
    with make_daemon(database) as daemon:
        _change_everything(database, Random(7))
        daemon.catch_up()
        assert daemon.stop() == 0
    for options in ({"include-timestamp": "on"}, {"include-xids": "0"}):
        given = ", ".join(f"'{name}', '{value}'" for name, value in options.items())
        with database.connect() as session:
            session.execute(oracle.OUTPUT_SETTINGS)
            own = session.execute(
                f"SELECT data FROM pg_logical_slot_peek_changes('{plain_slot}', NULL, NULL, "
                f"'skip-empty-xacts', '1', {given})"
            ).fetchall()
        served = _served(daemon.root, "test_decoding", {"skip-empty-xacts": None, **options})
        lines, shown = [line.decode() for line in served], [data for (data,) in own]
        if database.server.major >= _MESSAGES_BEGIN:
            assert lines == shown
        assert _of_rows(lines) == _of_rows(shown)
        told = [line for line in lines if line.startswith("message: ")]
        assert told == [data for data in shown if data.startswith("message: ")]
    for messages in ("false", "true"):
        own = database.execute(
            f"SELECT data FROM pg_logical_slot_peek_binary_changes('{database.name}_pgoutput', NULL, "
            f"NULL, 'proto_version', '1', 'publication_names', '{database.publication}', "
            f"'messages', '{messages}')"
        )
        named: dict[str, str | None] = {
            "proto_version": "1",
            "publication_names": database.publication,
            "messages": messages,
        }
        served = _served(daemon.root, "pgoutput", named)
        assert served == _once([data for (data,) in own])


def _of_rows(lines: list[str]) -> list[str]:
    """Without messages, and transactions that have nothing else."""
    kept: list[str] = []
    for line in lines:
        if line.startswith("COMMIT") and kept[-1].startswith("BEGIN"):
            kept.pop()
        elif not line.startswith("message: "):
            kept.append(line)
    return kept


def _once(messages: list[bytes]) -> list[bytes]:
    """Without empty transactions, and descriptions that the server repeats after a TRUNCATE."""
    kept: list[bytes] = []
    for message in messages:
        if message[:1] == b"C" and kept[-1][:1] == b"B":
            kept.pop()
        elif message[:1] not in b"RY" or message not in kept:
            kept.append(message)
    return kept
