"""Streams and recordings with a damaged row: each command says where it stands."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.commands import Configure, Run
from kit.gaussserver import GaussServer
from kit.poison import POISON, Poisoner
from kit.postgres import Database
from kit.proxy import Proxy

from gaussdecode.errors import EX_CONFIG, EX_OK, EX_PROTOCOL
from gaussdecode.model.lsn import Lsn

pytestmark = pytest.mark.integration
_SENT = b"\0\0\0\x06" + POISON.encode()
_DAMAGED = b"\xff\0\0\x06" + POISON.encode()


class Shortener(Proxy):
    """Claims of a binary value that it is longer than its record."""

    def _spoil(self, data: bytes, *others: object) -> bytes:
        return data.replace(_SENT, _DAMAGED)


def place(err: str) -> tuple[Lsn, int]:
    """The position and transaction that an error names."""
    found = re.search(r"near ([0-9A-F]+/[0-9A-F]+), in transaction (\d+)", err)
    assert found is not None, err
    assert POISON not in err
    return Lsn.parse(found[1]), int(found[2])


@pytest.mark.parametrize("number", [0, 1], ids=["single", "batched"])
def test_gaussdb(
    make_gauss: Callable[..., GaussServer],
    configure_gauss: Configure,
    run: Run,
    tmp_path: Path,
    number: int,
) -> None:
    """By the position of the row and the number of its transaction."""
    server = make_gauss()
    server.create_slot("orders")
    table = server.store.create_table("public", "t", {"a": "int4", "b": "text"}, key=["a"])
    for values in (["well"], ["well", POISON], ["well"]):
        transaction = server.store.begin()
        for key, value in enumerate(values):
            transaction.insert(table, {"a": str(key), "b": value})
        transaction.commit()
    sick = server.store.committed[1]
    expected = (Lsn(sick.changes[1].lsn), sick.xid)
    decoding = f"{{parallel-decode-num: 2, decode-style: b, sending-batch: {number}}}"
    path = configure_gauss(server, f"decoding: {decoding}")
    whole = tmp_path / "whole.capture"
    assert run("capture", path, str(whole)).status == EX_OK
    config = Path(path)
    with Shortener(server.ha_port) as proxy:
        text = config.read_text()
        config.write_text(text.replace(f"ha-port: {server.ha_port}", f"ha-port: {proxy.port}"))
        for command in (("peek", path), ("get", path), ("capture", path, str(tmp_path / "c"))):
            result = run(*command)
            assert (result.status, place(result.err)) == (EX_PROTOCOL, expected), command
    damaged = tmp_path / "damaged.capture"
    damaged.write_bytes(whole.read_bytes().replace(_SENT, _DAMAGED))
    result = run("replay", str(damaged), "--root", str(tmp_path / "landed"))
    assert (result.status, place(result.err)) == (EX_PROTOCOL, expected)


def test_postgresql(database_15: Database, configure: Configure, run: Run, tmp_path: Path) -> None:
    """The same of pgoutput, whose frames a recording takes as they are."""
    database_15.execute("CREATE TABLE t (x int PRIMARY KEY, y text)")
    database_15.create_slot()
    database_15.execute("INSERT INTO t VALUES (1, 'well')")
    with database_15.connect() as session:
        (before,) = session.execute("SELECT pg_current_wal_lsn()").fetchone() or ("",)
        session.execute("BEGIN")
        session.execute("INSERT INTO t VALUES (2, 'well')")
        session.execute(f"INSERT INTO t VALUES (3, '{POISON}')")
        (xid,) = session.execute("SELECT txid_current() % (1::bigint << 32)").fetchone() or (0,)
        session.execute("COMMIT")
    recording = tmp_path / "t.capture"
    with Poisoner(database_15.server.port) as proxy:
        path = Path(configure(database_15))
        direct = f"port={database_15.server.port}"
        path.write_text(path.read_text().replace(direct, f"port={proxy.port}"))
        found = [run(command, str(path)) for command in ("peek", "get")]
        assert run("capture", str(path), str(recording)).status == EX_OK
    found.append(run("replay", str(recording), "--root", str(tmp_path / "landed")))
    assert {result.status for result in found} == {EX_PROTOCOL}
    places = [place(result.err) for result in found]
    assert {number for _, number in places} == {xid}
    assert all(lsn > Lsn.parse(before) for lsn, _ in places[:2])  # a batch knows its first only


def test_what_is_no_directory_is_not_verified(run: Run, tmp_path: Path) -> None:
    """Given a wrong path, or the configuration, verify says what it wants."""
    (tmp_path / "orders.yaml").write_text("slot: orders\n")
    for name, why in (("nope", "no such directory"), ("orders.yaml", "it is a file")):
        result = run("verify", str(tmp_path / name))
        assert result.status == EX_CONFIG
        assert f"{name}: {why}; give the directory that landing.root names" in result.err
