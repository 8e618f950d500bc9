"""Simulated nodes share one clock of CSNs, and the oracle of a cluster knows what they committed."""

from collections.abc import Callable, Iterator

import pytest
from kit.daemon import wait_until
from kit.gaussclient import Client, Record, ServerError, binary_records
from kit.gausscluster import GaussCluster
from kit.gausshistory import SCHEMA, TABLES, History
from kit.gaussserver import Behaviour
from kit.gaussstore import Store
from kit.postgres import Postgres

PARALLEL = {"parallel_decode_num": "2", "sending_batch": "1"}
SEEDS = range(6)


def trusting() -> Behaviour:
    """A node that lets anybody in, with a quick timer."""
    return Behaviour(flush_seconds=0.05, hba="trust", replication_hba="trust")


@pytest.fixture
def cluster() -> Iterator[GaussCluster]:
    """Three nodes without SQL."""
    with GaussCluster(behaviour=trusting) as made:
        yield made


@pytest.fixture
def asked(servers: Callable[[int], Postgres]) -> Iterator[GaussCluster]:
    """Two nodes that answer SQL."""
    with GaussCluster(("dn1", "dn2"), postgres=servers(15), behaviour=trusting) as made:
        yield made


def told(client: Client, text: str) -> str | None:
    """The only value of a query."""
    ((value,),) = client.query(text)
    return value


def stream(port: int, commits: int, **options: str) -> list[Record]:
    """Read a stream until it brought so many commits."""
    got: list[Record] = []
    with Client(port, replication=True) as client:
        client.start("s", **{**PARALLEL, **options})
        while sum(record.kind == "C" for record in got) < commits:
            bodies = client.receive(1).bodies
            assert bodies, "the stream has ended early"
            got += [record for body in bodies for record in binary_records(body)]
    return got


# --- CSNs and commit records --------------------------------------------------------------


def test_a_csn_is_drawn_before_its_record(cluster: GaussCluster) -> None:
    """Who draws first may write last, so that CSN and LSN differ on a node and between nodes."""
    tables = cluster.create_table("kit", "t", {"id": "int8"}, key=["id"])
    first, second, third = cluster.begin(), cluster.begin(), cluster.begin()
    for number, (of, node) in enumerate(((first, "dn1"), (second, "dn1"), (third, "dn2"))):
        of.on(node).insert(tables[node], {"id": str(number)})
    assert first.draw_csn() + 1 == second.draw_csn() == third.draw_csn() - 1
    third.commit()
    second.commit()
    store = cluster.servers["dn1"].store
    assert store.expected() == [first.csn]
    first.commit()
    assert store.expected() == []
    assert [of.csn for of in store.committed] == [second.csn, first.csn]
    assert [of.csn for of in cluster.history()] == [first.csn, second.csn, third.csn]


def test_one_csn_on_several_nodes(cluster: GaussCluster) -> None:
    """A transaction over two nodes is prepared on both and has one CSN, whenever its records come."""
    tables = cluster.create_table("kit", "t", {"id": "int8"}, key=["id"])
    wide, narrow = cluster.begin(), cluster.begin()
    for node in ("dn1", "dn3"):
        wide.on(node).insert(tables[node], {"id": node[-1]})
    narrow.on("dn1").insert(tables["dn1"], {"id": "9"})
    csn = wide.draw_csn()
    assert wide.is_prepared
    assert all(cluster.servers[node].store.expected() == [csn] for node in ("dn1", "dn3"))
    wide.commit_on("dn1")
    narrow.commit()
    assert cluster.rows_at("kit", "t", csn) == {"dn1": [{"id": "1"}], "dn2": [], "dn3": []}
    wide.commit()
    assert cluster.rows_at("kit", "t", csn) == {
        "dn1": [{"id": "1"}], "dn2": [], "dn3": [{"id": "3"}],
    }  # fmt: skip
    assert cluster.rows_at("kit", "t")["dn1"] == [{"id": "1"}, {"id": "9"}]
    assert cluster.history()[0].parts.keys() == {"dn1", "dn3"}
    assert not any(server.store.activity.prepared for server in cluster.servers.values())


@pytest.mark.parametrize("seed", SEEDS)
def test_a_history_inverts(seed: int) -> None:
    """Random histories invert CSN and LSN, span nodes, and replay to the tables as they are."""
    cluster = GaussCluster()
    history = History(cluster, seed)
    history.run(600)
    history.finish()
    found = cluster.history()
    assert len(found) > 30
    assert any(len(of.parts) > 1 for of in found)
    inverted = 0
    for name, server in cluster.servers.items():
        csns = [of.csn for of in server.store.committed]
        inverted += csns != sorted(csns)
        assert server.store.expected() == []
        assert not server.store.activity.backends
        for table in TABLES:
            held = server.store.tables[SCHEMA, table]
            now = [held.row(values) for values in server.store.contents(held).values()]
            assert sorted(map(str, cluster.rows_at(SCHEMA, table)[name])) == sorted(map(str, now))
    assert inverted


class Mark:
    """Says when everything below a CSN has its commit record, from what the nodes tell.

    Attributes:
        csn: everything below it.
        low: WAL position of each node before the CSN was taken.
        high: of each node, once all that ran then has ended or is seen at rest.
    """

    def __init__(self, cluster: GaussCluster) -> None:
        self._stores = {name: server.store for name, server in cluster.servers.items()}
        self.low = {name: store.wal_end for name, store in self._stores.items()}
        self.csn = cluster.clock.next
        self.high: dict[str, int] = {}
        self._began = {name: store.activity.now_us() for name, store in self._stores.items()}
        self._running = {name: self._now(store) for name, store in self._stores.items()}

    @staticmethod
    def _now(store: Store) -> set[int]:
        return {one.xid for one in store.activity.running() if one.xid}

    def look(self) -> bool:
        """Look again; say whether it holds."""
        for name, store in self._stores.items():
            left = self._running[name] & self._now(store)
            for backend in store.activity.backends.values():
                if backend.state != "active" or (backend.query_start_us or 0) > self._began[name]:
                    left.discard(backend.xid)
            self._running[name] = left
            if not left:
                self.high.setdefault(name, store.wal_end)
        return len(self.high) == len(self._stores)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_nodes_tell_bounds_what_is_to_come(seed: int) -> None:
    """When all that ran beside the next CSN has ended, every commit record below it is written."""
    cluster = GaussCluster()
    cluster.servers["dn2"].store.activity.skew_us = -3_600_000_000
    history = History(cluster, seed, linger=0.7)
    marks: list[Mark] = []
    pending: list[Mark] = []
    for _ in range(150):
        history.run(6)
        pending.append(Mark(cluster))
        marks += [mark for mark in pending if mark.look()]
        pending = [mark for mark in pending if mark not in marks]
    history.finish()
    assert len(marks) > 20
    late = 0
    for mark in marks:
        for name, server in cluster.servers.items():
            for of in server.store.committed:
                assert of.csn >= mark.csn or of.end_lsn <= mark.high[name]
                assert of.csn < mark.csn or of.end_lsn > mark.low[name]
                late += of.csn < mark.csn and of.end_lsn > mark.low[name]
    assert late, "no commit record came between the two positions"


def test_a_history_is_of_its_seed() -> None:
    """The same seed gives the same history, another one another."""

    def made(seed: int) -> list[tuple[int, tuple[str, ...]]]:
        cluster = GaussCluster()
        history = History(cluster, seed)
        history.run(300)
        history.finish()
        return [(of.csn, tuple(of.parts)) for of in cluster.history()]

    assert made(1) == made(1) != made(2)


def test_streams_of_a_history(cluster: GaussCluster) -> None:
    """Each node streams its own transactions in the order of commit records, with global CSNs."""
    cluster.create_slots("s")
    history = History(cluster, 5, truncates=False)
    history.run(400)
    history.finish()
    for server in cluster.servers.values():
        committed = [of for of in server.store.committed if of.changes]
        got = stream(server.port, len(committed), skip_empty_xacts="true")
        assert [r.csn for r in got if r.kind == "B"] == [of.csn for of in committed]
        assert [r.lsn for r in got if r.kind == "C"] == [of.end_lsn for of in committed]


def test_a_node_goes_away_and_comes_back(cluster: GaussCluster) -> None:
    """A node that is away refuses connections, and is found on its port of before."""
    cluster.create_slots("s")
    port = cluster.servers["dn2"].port
    cluster.away("dn2")
    with pytest.raises(OSError, match="refused"):
        Client(port)
    Client(cluster.servers["dn1"].port).close()
    cluster.back("dn2")
    with Client(port, replication=True) as client:
        client.start("s", **PARALLEL)
        cluster.cut("dn2")
        assert client.is_ended()


# --- what SQL tells -----------------------------------------------------------------------


def test_the_next_csn_is_the_clock_of_all(asked: GaussCluster) -> None:
    """Each node tells the CSN that comes next anywhere, unless it knows its own commits only."""
    query = "SELECT next_csn::text FROM pg_catalog.gs_get_next_xid_csn()"
    with Client(asked.servers["dn2"].port) as client:
        before = told(client, query)
        one = asked.begin()
        one.on("dn1").truncate(*asked.create_table("kit", "t", {"id": "int8"}).values())
        one.commit()
        assert one.csn is not None
        assert before == str(one.csn)
        assert told(client, query) == str(one.csn + 1)
        asked.servers["dn2"].behaviour.is_csn_local = True
        assert told(client, query) == str(one.csn)
        casted = "SELECT int8in(xidout(next_csn)) FROM gs_get_next_xid_csn()"
        assert told(client, casted) == str(one.csn)
        with pytest.raises(ServerError):
            client.query("SELECT next_csn + 1 FROM gs_get_next_xid_csn()")


def test_running_transactions(asked: GaussCluster) -> None:
    """A transaction is listed from its first change to its commit record; prepared without a pid."""
    tables = asked.create_table("kit", "t", {"id": "int8"}, key=["id"])
    query = (
        "SELECT r.gxid::text, r.state::text, r.pid::text, a.state, a.query "
        "FROM pg_catalog.pg_get_running_xacts() r "
        "LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = r.pid WHERE r.gxid::text <> '0'"
    )
    with Client(asked.servers["dn1"].port) as client:
        of = asked.begin()
        part = of.on("dn1")
        assert client.query(query) == []
        part.insert(tables["dn1"], {"id": "1"})
        pid = str(part.backend.pid)
        ((*row,),) = client.query(query)
        assert row[:4] == [str(part.xid), "0", pid, "idle in transaction"]
        of.draw_csn()
        assert client.query(query) == [(str(part.xid), "0", pid, "active", "COMMIT")]
        of.commit()
        assert client.query(query) == []
        wide = asked.begin()
        for node in ("dn1", "dn2"):
            wide.on(node).insert(tables[node], {"id": node[-1]})
        wide.prepare()
        xid = str(wide.parts["dn1"].xid)
        assert client.query(query) == [(xid, "3", "0", None, None)]
        prepared = "SELECT transaction::text, gid FROM pg_catalog.pg_prepared_xacts"
        assert client.query(prepared) == [(xid, wide.gid)]
        wide.commit()
        assert client.query(query) == client.query(prepared) == []


def test_statements_have_a_beginning(asked: GaussCluster) -> None:
    """query_start and clock_timestamp() are of one clock, which may be wrong."""
    store = asked.servers["dn1"].store
    store.activity.skew_us = 3_600_000_000
    began = (
        "SELECT query_start > pg_catalog.clock_timestamp() - interval '1 minute', "
        "query_start <= pg_catalog.clock_timestamp() FROM pg_stat_activity WHERE query = 'slow'"
    )
    part = store.begin()
    part.work("slow")
    with Client(asked.servers["dn1"].port) as client:
        assert client.query(began) == [("t", "t")]
        own = "SELECT state FROM pg_stat_activity WHERE pid = pg_catalog.pg_backend_pid()"
        assert told(client, own) == "active"
        assert told(client, "SELECT clock_timestamp() > '2026-01-01'") == "t"
        part.rollback()
        assert client.query(began) == []


def test_rights(asked: GaussCluster) -> None:
    """What a user may not use is refused with 42501; what others do may be hidden from it."""
    server = asked.servers["dn1"]
    part = server.store.begin(user="app")
    part.work("UPDATE kit.t")
    with Client(server.port) as client:
        query = "SELECT state, query FROM pg_stat_activity WHERE usename = 'app'"
        assert client.query(query) == [("active", "UPDATE kit.t")]
        server.behaviour.masks_activity = True
        assert client.query(query) == [(None, "<insufficient privilege>")]
        for name in ("pg_get_running_xacts", "gs_get_next_xid_csn", "txid_current"):
            server.denied.add(("replica", name))
            with pytest.raises(ServerError) as caught:
                client.query(f"SELECT * FROM pg_catalog.{name}()")
            client.message()
            assert caught.value.fields["C"] == "42501"
            assert name in caught.value.fields["M"]
        server.behaviour.is_standby = True
        assert told(client, "SELECT pg_catalog.pg_is_in_recovery()") == "t"
        with pytest.raises(ServerError, match="recovery is in progress"):
            client.query("SELECT pg_catalog.pg_current_xlog_insert_location()")


# --- empty commits, and what may be confirmed -------------------------------------------------


@pytest.mark.parametrize("is_parallel", [True, False])
def test_an_empty_commit(asked: GaussCluster, *, is_parallel: bool) -> None:
    """txid_current() writes a commit record: parallel decoding shows it, a keepalive the rest."""
    server = asked.servers["dn1"]
    server.create_slot("s")
    with Client(server.port) as client, Client(server.port, replication=True) as walsender:
        walsender.start("s", **(PARALLEL if is_parallel else {}))
        xid = told(client, "SELECT pg_catalog.txid_current()")
        client.query("BEGIN")
        assert told(client, "SELECT pg_catalog.txid_current()") != xid
        assert len(server.store.committed) == 1
        assert any(one.xid for one in server.store.activity.running())
        client.query("COMMIT")
        end = server.store.committed[-1].end_lsn
        got = walsender.receive(1, 0.5)
    assert len(server.store.committed) == 2
    if is_parallel:
        records = [record for body in got.bodies for record in binary_records(body)]
        assert [record.kind for record in records][:2] == ["B", "C"]
    else:
        assert not got.bodies
        assert got.keepalives[-1][0] >= end


def test_a_told_position_may_be_confirmed(asked: GaussCluster) -> None:
    """A WAL position that SQL told is confirmed without fault, once all before it was sent."""
    server = asked.servers["dn1"]
    slot = server.create_slot("s")
    table = asked.create_table("kit", "t", {"id": "int8"}, key=["id"])["dn1"]
    query = "SELECT pg_catalog.pg_current_xlog_insert_location()"

    def position(client: Client) -> int:
        high, low = (told(client, query) or "").split("/")
        return int(high, 16) << 32 | int(low, 16)

    def insert(number: int) -> None:
        transaction = server.store.begin()
        transaction.insert(table, {"id": str(number)})
        transaction.commit()

    with Client(server.port) as client, Client(server.port, replication=True) as walsender:
        walsender.start("s", **PARALLEL)
        insert(1)
        low = position(client)
        assert walsender.receive(1).bodies
        walsender.confirm(low)
        wait_until(lambda: slot.confirmed_lsn == low, "the confirmation")
        assert server.violations == []
        server.behaviour.is_held = True
        insert(2)
        high = position(client)
        walsender.confirm(high)
        wait_until(lambda: slot.confirmed_lsn == high, "the second confirmation")
    assert "that was not sent" in server.violations.pop()


def test_forked_processes_share_the_clock() -> None:
    """A CSN that another process drew is not drawn again."""
    import multiprocessing

    store = Store()
    process = multiprocessing.get_context("fork").Process(target=store.csn_clock.draw)
    before = store.next_csn
    process.start()
    process.join()
    assert store.draw_csn() == before + 1
