"""A connection that is lost is a source that is not available now, wherever it is lost.

Every conversation of `kit.conversations` is broken off at every piece of every answer. It must say that
the source is not available, which the daemon and systemd try again: never that bytes break the protocol
(status 76), that something is wrong with the configuration (78), or that the program has a bug (70).
"""

import ast
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from kit import conversations
from kit.conversations import GAUSSDB, POSTGRESQL, SERVE_ROLE, TABLE, UNBOUNDED, Conversation
from kit.gaussserver import Behaviour, GaussServer
from kit.gausssql import Catalogue
from kit.gaussstore import Store
from kit.postgres import Database, Postgres
from kit.proxy import Fault, Proxy

import gaussdecode
from gaussdecode.daemon import catalogwatch, csn_marks
from gaussdecode.errors import SourceError
from gaussdecode.operations.compare import source_sums as sourcesums
from gaussdecode.serve import catalog as servecatalog
from gaussdecode.source.gaussdb import catalog as gausscatalog
from gaussdecode.source.gaussdb import connection as gaussdb
from gaussdecode.source.gaussdb import view as gaussview
from gaussdecode.source.postgresql import catalog, probe
from gaussdecode.source.postgresql import connection as postgresql
from gaussdecode.source.postgresql import export as pgexport

pytestmark = pytest.mark.integration
Talk = Callable[[Proxy, int], None]
"""Has a conversation over a proxy, on a server that is as it was before the one before.

The number is the seconds that the configuration waits for an answer.
"""
Hurry = Callable[[], None]

_OPENERS = frozenset({"connect", "connect_lasting", "connect_gaussdb"})
_SILENT_AT = (0.5, 0.95)  # shares of the server's pieces
_SILENT_SECONDS = 20.0  # far above all bounds, and far below for ever
_PATIENT, _IMPATIENT = 60, 1  # seconds: where all is whole, and where something is not
_FOREIGN = (
    "gaussdecode/demo/",
    "gaussdecode/commands/demo.py",
    "gaussdecode/operations/ask_daemon.py",  # a daemon, no server
    "gaussdecode/source/gaussdb/dial.py",
)


def _talk(path: Path, port: int, restore: Callable[[], None], conversation: Conversation) -> Talk:
    """Write the proxy's port into the configuration, restore the server, have the conversation."""
    text = path.read_text()

    def talk(proxy: Proxy, seconds: int) -> None:
        restore()
        asked = text.replace(f"port={port}", f"port={proxy.port}")
        path.write_text(asked.replace("SECONDS", str(seconds)))
        conversation(path)

    return talk


def postgres_talks(database: Database, directory: Path) -> dict[str, Talk]:
    """Every conversation with a PostgreSQL."""
    database.execute(f"DROP ROLE IF EXISTS {SERVE_ROLE}; CREATE ROLE {SERVE_ROLE} LOGIN")
    database.execute("CREATE TABLE public.t (id int4 PRIMARY KEY, v text)")
    database.execute("INSERT INTO public.t SELECT g, repeat('x', g) FROM generate_series(1, 40) g")
    path = directory / "orders.yaml"
    path.write_text(
        f"slot: {database.slot}\nsource:\n  kind: postgresql\n"
        f"  dsn: {database.dsn} sslmode=disable connect_timeout=SECONDS\n  publication: [{database.publication}]\n"
        f"  allow-insecure: true\n  receiver-timeout: SECONDSs\nsnapshot: {{statement-timeout: SECONDSs}}\nlanding: {{root: {directory / 'landing'}}}\n"
    )
    path.chmod(0o600)

    def restore(*, has_slot: bool) -> None:
        there = database.execute(
            "SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots "
            f"WHERE slot_name = '{database.slot}' AND active; "
        )
        rows = database.execute(
            f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{database.slot}'"
        )
        assert len(there) <= 1
        if has_slot and not rows:
            database.create_slot()
        elif rows and not has_slot:
            database.execute(f"SELECT pg_drop_replication_slot('{database.slot}')")

    return {
        name: _talk(
            path,
            database.server.port,
            lambda has_slot=name != "slot create": restore(has_slot=has_slot),  # type: ignore[misc]
            conversation,
        )
        for name, conversation in POSTGRESQL.items()
    }


def points(sizes: list[int]) -> Iterator[tuple[int, Fault]]:
    """Where to break off, and how: in the middle of a piece or after it, with a goodbye or without."""
    total = 0
    for number, size in enumerate(sizes):
        is_middle, is_cut = number % 2, number // 2 % 2
        yield total + (size // 2 if is_middle else size - 1), Fault.CUT if is_cut else Fault.RESET
        total += size


def walk(talk: Talk, port: int) -> list[str]:
    """Break a conversation off everywhere; gives what was said that was not to be said."""
    sizes, connections = whole(talk, port)
    wrong = []
    for after, fault in points(sizes):
        with Proxy(port) as proxy:
            proxy.plan(fault, after)
            wrong += said(talk, proxy, f"{fault.name} after {after} of {sum(sizes)} bytes")
    for count in range(connections):
        with Proxy(port) as proxy:
            proxy.accepts = count
            if not count:
                proxy.stop_listening()
            wrong += said(talk, proxy, f"refused after {count} connections")
    return wrong


def whole(talk: Talk, port: int) -> tuple[list[int], int]:
    """Have a conversation to its end: sizes of the server's pieces, and number of connections."""
    with Proxy(port) as proxy:
        talk(proxy, _PATIENT)
        return list(proxy.brought), proxy.connections


def fall_silent(talk: Talk, port: int, hurry: Hurry) -> list[str]:
    """Have the server fall silent in a conversation; gives what was said that was not to be said."""
    sizes, _ = whole(talk, port)
    hurry()
    wrong = []
    for share in _SILENT_AT:
        after = sum(sizes[: int(len(sizes) * share)])
        with Proxy(port) as proxy:
            proxy.plan(Fault.STALL, after)
            began = time.monotonic()
            wrong += said(talk, proxy, f"silent after {after} of {sum(sizes)} bytes")
            if proxy.faults and time.monotonic() - began > _SILENT_SECONDS:
                wrong.append(f"silent after {after} bytes: it took too long")
    return wrong


def said(talk: Talk, proxy: Proxy, fault: str) -> list[str]:
    """What a conversation said that was broken off, unless that was right."""
    try:
        talk(proxy, _IMPATIENT)
    except SourceError as error:
        return [] if error.retryable else [f"{fault}: {type(error).__name__}: {error}"]
    except BaseException as error:  # noqa: BLE001  # what is wrong is what is looked for
        return [f"{fault}: {type(error).__name__}: {error}"]
    return []


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> Hurry:
    """Have answers waited for shortly, once it is called: on a busy machine an answer may be late."""

    def begin() -> None:
        for module in (postgresql, gaussdb, gaussview):
            monkeypatch.setattr(module, "ANSWER_SECONDS", 2.0)
        monkeypatch.setattr(probe, "_PATIENCE", 0.5)
        monkeypatch.setattr(catalog, "_LATE", 0.5)
        for module in (catalog, probe):
            monkeypatch.setattr(module, "_CONNECT_SECONDS", 1)
        monkeypatch.setattr(gausscatalog, "_ANSWER_SECONDS", 0.5)
        monkeypatch.setattr(pgexport, "ANSWER_SECONDS", 0.5)
        monkeypatch.setattr(sourcesums, "ANSWER_SECONDS", 0.5)
        monkeypatch.setattr(csn_marks, "_ANSWER_SECONDS", 0.5)
        monkeypatch.setattr(servecatalog, "_SECONDS", 0.5)
        monkeypatch.setattr(catalogwatch, "_SECONDS", 0.5)
        monkeypatch.setattr(conversations, "VIEW_SECONDS", 1.0)

    return begin


@pytest.mark.parametrize("name", POSTGRESQL)
def test_postgresql(database_15: Database, tmp_path: Path, name: str) -> None:
    """Each conversation with a PostgreSQL."""
    wrong = walk(postgres_talks(database_15, tmp_path)[name], database_15.server.port)
    assert not wrong, "\n".join(wrong)


def gauss_talks(gauss: GaussServer, directory: Path) -> dict[str, Talk]:
    """Every conversation with a simulated GaussDB."""
    table = gauss.store.create_table(*TABLE, {"id": "int4", "v": "text"}, key=["id"])
    transaction = gauss.store.begin()
    for number in range(40):
        transaction.insert(table, {"id": str(number), "v": "x" * number})
    transaction.commit()
    path, password = directory / "orders.yaml", directory / "password"
    password.write_text(gauss.users["replica"].password + "\n")
    password.chmod(0o600)
    path.write_text(
        "slot: s\nsource:\n  kind: gaussdb\n"
        f"  dsn: host=127.0.0.1 port={gauss.port} dbname={gauss.database} user=replica sslmode=disable connect_timeout=SECONDS\n"
        f"  password-file: {password}\n  allow-insecure: true\n  receiver-timeout: SECONDSs\nsnapshot: {{statement-timeout: SECONDSs}}\n"
        "decoding: {parallel-decode-num: 2, decode-style: b, sending-batch: 1}\n"
        f"landing: {{root: {directory / 'landing'}}}\n"
    )
    path.chmod(0o600)

    def restore(*, has_slot: bool) -> None:
        gauss.reset_connections()
        if "s" in gauss.slots:
            gauss.drop_slot("s")
        if has_slot:
            gauss.create_slot("s")

    return {
        name: _talk(
            path,
            gauss.port,
            lambda has_slot=name != "slot create": restore(has_slot=has_slot),  # type: ignore[misc]
            conversation,
        )
        for name, conversation in GAUSSDB.items()
    }


@pytest.fixture
def gauss(servers: Callable[[int], Postgres]) -> Iterator[GaussServer]:
    """A simulated openGauss."""
    catalogue = Catalogue(servers(15))
    with GaussServer(Store(), catalogue=catalogue, behaviour=Behaviour(flush_seconds=0.05)) as one:
        yield one
    catalogue.close()


@pytest.mark.parametrize("name", sorted(POSTGRESQL.keys() - UNBOUNDED))
def test_silent_postgresql(database_15: Database, tmp_path: Path, hurry: Hurry, name: str) -> None:
    """A server, or a proxy, that says no more and keeps the connection."""
    talk = postgres_talks(database_15, tmp_path)[name]
    wrong = fall_silent(talk, database_15.server.port, hurry)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", sorted(GAUSSDB.keys() - UNBOUNDED))
def test_silent_gaussdb(gauss: GaussServer, tmp_path: Path, hurry: Hurry, name: str) -> None:
    """The same of a GaussDB."""
    wrong = fall_silent(gauss_talks(gauss, tmp_path)[name], gauss.port, hurry)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", GAUSSDB)
def test_gaussdb(gauss: GaussServer, tmp_path: Path, name: str) -> None:
    """Each conversation with a GaussDB."""
    wrong = walk(gauss_talks(gauss, tmp_path)[name], gauss.port)
    assert not wrong, "\n".join(wrong)


def openers() -> set[tuple[str, str]]:
    """Functions of the package that open a connection to a source: file and qualified name."""
    root = Path(gaussdecode.__file__).parent
    found = set()
    for path in root.rglob("*.py"):
        if not path.relative_to(root.parent).as_posix().startswith(_FOREIGN):
            found |= {(str(path), name) for name in _openers(ast.parse(path.read_text()), "")}
    return found


def _openers(tree: ast.AST, inside: str) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                is_class = isinstance(node, ast.ClassDef)
                yield from _openers(node, f"{inside}{name}" + ("." if is_class else ""))
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in _OPENERS:
                yield inside
                yield from _openers(node, inside)
            case _:
                yield from _openers(node, inside)


def test_the_list_is_whole(database_15: Database, gauss: GaussServer, tmp_path: Path) -> None:
    """Whatever opens a connection is called by a conversation."""
    called: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, _argument: Any) -> None:  # Any: of many types
        if event == "call":
            called.add((frame.f_code.co_filename, frame.f_code.co_qualname))

    talks = [
        (talk, port)
        for made, port in (
            (postgres_talks(database_15, tmp_path), database_15.server.port),
            (gauss_talks(gauss, _made(tmp_path / "gauss")), gauss.port),
        )
        for talk in made.values()
    ]
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        for talk, port in talks:
            whole(talk, port)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert openers() <= called, sorted(openers() - called)


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory
