"""A daemon that follows `gaussdecode serve` as a GaussDB: the second landing equals the first, in every style."""

import contextlib
import functools
import struct
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

import psycopg
import pyarrow as pa
import pytest
from kit import landing
from kit.daemon import Daemon, Json
from kit.gausscluster import GaussCluster
from kit.gaussdaemon import GaussDatabase, lands
from kit.gausshistory import History
from kit.gaussserver import GaussServer
from kit.gaussseveral import several
from kit.gaussworkload import Workload
from kit.postgres import Database, Postgres
from kit.served import Replication, Served
from kit.servedtables import CHANGES, TABLES

from gaussdecode.cli import main
from gaussdecode.demo.ports import free_port
from gaussdecode.serve.errors import ServeError

pytestmark = pytest.mark.integration

_PARALLEL: Final = {"parallel-decode-num": 2}
_STYLES: Final[Mapping[str, tuple[str, Json]]] = {
    "b0": ("mppdb_decoding", {**_PARALLEL, "decode-style": "b", "sending-batch": 0}),
    "b1": ("parallel_binary_decoding", {**_PARALLEL, "decode-style": "b", "sending-batch": 1}),
    "t1": ("parallel_text_decoding", {**_PARALLEL, "decode-style": "t"}),
    "j1": ("parallel_json_decoding", {**_PARALLEL, "decode-style": "j"}),
    "s0": ("mppdb_decoding", {"parallel-decode-num": 1}),
    "q0": ("sql_decoding", {"parallel-decode-num": 1}),
}
"""Plug-in and options by name; a landing asks for t and j in batches only."""


class Follower(Daemon):
    """A daemon with kind gaussdb that follows a server of the test."""

    def _merge(self, dsn: str, changes: Mapping[str, Json]) -> Json:
        merged = super()._merge(dsn, changes)
        del merged["source"]["publication"]
        return merged


def _has_landed(daemon: Daemon, lsn: int) -> bool:
    return daemon.durable_lsn() >= lsn


def _follow(
    served: Served, database: Database, directory: Path, styles: Iterable[str] = _STYLES
) -> dict[str, landing.Landing]:
    """Land what a server sends in some styles, all at once."""
    dsn = f"host=127.0.0.1 port={served.port} dbname={served.database} user=tester sslmode=disable"
    assert isinstance(served.server.root, Path)
    last = landing.read(served.server.root).transactions[-1]["gd_lsn"]
    daemons = {}
    with contextlib.ExitStack() as stack:
        for name in styles:
            plugin, options = _STYLES[name]
            served.add_slot(name, plugin=plugin)
            of = directory / name
            of.mkdir()
            kind = {"kind": "gaussdb", "plugin": plugin}
            follower = Follower(database, of, dsn=dsn, config={"source": kind, "decoding": options})
            follower.write_config_value("slot", name)
            assert main(["slot", "adopt", str(follower.config_path)]) == 0
            daemons[name] = stack.enter_context(follower)
        for daemon in daemons.values():
            is_done = functools.partial(_has_landed, daemon, last)
            daemon.wait_while_running(is_done, "the last transaction")
            assert daemon.stop() == 0
    return {name: landing.read(daemon.root) for name, daemon in daemons.items()}


def _rounded(value: object, held: pa.DataType) -> object:
    """A floating point number with the digits of sql_decoding."""
    if not isinstance(value, float) or not pa.types.is_floating(held):
        return value
    if pa.types.is_float64(held):
        return float(f"{value:.15g}")
    return struct.unpack("f", struct.pack("f", float(f"{value:.6g}")))[0]


def _changes(of: landing.Landing, style: str) -> list[str]:
    """Texts of all changes, as far as a style carries them: NaN is not equal to itself."""
    is_sql, is_binary = style.startswith("q"), style.startswith("b")
    found = []
    for change in of.changes:
        if change.op == "T" and style[0] not in "sq":
            continue
        new, old, types = dict(change.new), change.old, dict(change.types)
        if is_sql:
            new = {name: _rounded(value, types[name]) for name, value in new.items()}
        for name in change.unchanged if is_binary else ():
            del new[name], types[name]
        if change.op == "U" and old == {name: change.new.get(name) for name in old or ()}:
            old = None  # the key, which did not change; PostgreSQL leaves it out
        unchanged = () if is_binary else sorted(change.unchanged)
        xid = None if is_sql else change.xid
        key = change.schema.table, change.schema.key
        found.append(
            repr(
                (
                    change.order,
                    xid,
                    change.op,
                    key,
                    new,
                    old,
                    change.raw,
                    unchanged,
                    types,
                    change.lsn,
                )
            )
        )
    return found


def _transactions(of: landing.Landing, style: str) -> list[tuple[object, ...]]:
    """What a style carries of each transaction."""
    names = ["gd_lsn", "gd_ts", "gd_csn", *(["gd_xid"] if style[0] != "q" else [])]
    names += ["gd_first_lsn"] if style[0] in "btj" else []
    return [tuple(row[name] for name in names) for row in of.transactions]


def _check(first: landing.Landing, found: Mapping[str, landing.Landing]) -> None:
    for name, second in found.items():
        assert _changes(second, name) == _changes(first, name), name
        assert _transactions(second, name) == _transactions(first, name), name


def test_of_postgresql(
    servers: Callable[[int], Postgres], make_daemon: Callable[..., Daemon], tmp_path: Path
) -> None:
    """What a PostgreSQL source fed: all types, keys, and a large value that did not change."""
    database = Database(servers(17), "serve_gauss")
    database.execute(TABLES)
    database.create_slot()
    try:
        with make_daemon(database) as daemon:
            for change in CHANGES:
                database.execute(change)
            daemon.catch_up()
            assert daemon.stop() == 0
        with Served(daemon.root) as served:
            found = _follow(served, database, tmp_path)
    finally:
        database.drop()
    first = landing.read(daemon.root)
    assert any(change.unchanged for change in first.changes)
    _check(first, found)


def test_of_gaussdb(make_gauss: Callable[..., GaussServer], tmp_path: Path) -> None:
    """What a GaussDB fed, with the types that it has of its own."""
    gauss = make_gauss()
    source = GaussDatabase(gauss)
    with lands(source, tmp_path / "first") as daemon:
        Workload(gauss.store, 7).run(8)
        daemon.catch_up()
        assert daemon.stop() == 0
    with Served(daemon.root) as served:
        found = _follow(served, source, tmp_path, ("b1", "j1", "s0"))
    _check(landing.read(daemon.root), found)


# ---- in the order of CSNs ------------------------------------------------------------------


def _csns(messages: list[bytes]) -> list[int]:
    """CSNs of the transactions that begin in messages of style j."""
    return [int(text.split()[2]) for text in messages if text.startswith(b"BEGIN CSN: ")]


def test_nodes_in_the_order_of_csns(servers: Callable[[int], Postgres], tmp_path: Path) -> None:
    """Each node is a database, whose transactions come by CSN; what is confirmed does not come again."""
    with GaussCluster(("dn1", "dn2"), postgres=servers(15)) as cluster:
        history = History(cluster, 1, truncates=False)
        daemon = several(cluster, tmp_path)
        port = free_port()
        daemon.write_config(serve={"in-daemon": True, "listen": f"127.0.0.1:{port}"})
        with daemon:
            history.run(120)
            history.finish()
            daemon.catch_up_csn()
            dsn = f"host=127.0.0.1 port={port} user=tester sslmode=disable"
            for node in ("dn1", "dn2"):
                with psycopg.connect(dsn, dbname=node) as session:
                    assert session.execute("SELECT current_database()").fetchone() == (node,)
            assert daemon.stop() == 0
    inverted = 0
    with Served(daemon.root) as served:
        with pytest.raises(
            psycopg.OperationalError, match='a database by its name: "dn1" and "dn2"'
        ):
            served.connect(dbname="shop")
        for node in ("dn1", "dn2"):
            landed = landing.read(daemon.root, node)
            by_csn = sorted(landed.transactions, key=lambda row: row["gd_csn"])
            csns = [row["gd_csn"] for row in by_csn]
            inverted += csns != [row["gd_csn"] for row in sorted(by_csn, key=lambda r: r["gd_lsn"])]
            with served.connect(
                dbname=node, options="-c gaussdecode.start_lsn=earliest"
            ) as session:
                made = "SELECT * FROM pg_create_logical_replication_slot(%s, 'mppdb_decoding', {})"
                with pytest.raises(psycopg.Error, match="in the order of their CSNs"):
                    session.execute(made.format(0), [node])
                session.execute(made.format(1), [node])
                changes = "FROM pg_logical_slot_peek_changes(%s, NULL, NULL, 'output-order', %s"
                with pytest.raises(psycopg.Error, match="in the order of their CSNs"):
                    session.execute(f"SELECT data {changes})", [node, "0"])
                serial = [
                    data for (data,) in session.execute(f"SELECT data {changes})", [node, "1"])
                ]
            assert [int(text.split()[-1]) for text in serial if text.startswith("COMMIT")] == csns
            rows = [text for text in serial if text.startswith("{")]
            assert len(rows) == len(landed.changes)
            options = "(\"parallel-decode-num\" '2', \"decode-style\" 'j', \"output-order\" '1')"
            client = Replication(served, node, 0, options, dbname=node)
            found = client.until(csns[-1])
            assert _csns([message for _, message in found]) == csns
            assert [lsn for lsn, _ in found] == sorted(lsn for lsn, _ in found)
            client.confirm(csns[3])
            client.close()
            client = Replication(served, node, 0, options, dbname=node)
            assert _csns([message for _, message in client.until(csns[-1])]) == csns[4:]
            client.close()
            view = "SELECT database, confirmed_csn FROM pg_replication_slots WHERE slot_name = %s"
            with served.connect(dbname=node) as session:
                assert session.execute(view, [node]).fetchall() == [(node, csns[3])]
        with pytest.raises(ServeError, match="was not created in this database"):
            Replication(served, "dn1", dbname="dn2")
    assert inverted, "no transaction of a node has a later record and a smaller CSN"
