"""A simulated GaussDB streams a CSN slot in the order of CSNs, and tells how far it is."""

import struct
from collections.abc import Callable, Iterator

import pytest
from kit.daemon import wait_until
from kit.gaussclient import Client, Record, ServerError, binary_records
from kit.gausscluster import GaussCluster
from kit.gausshistory import History
from kit.gaussprofile import COMMERCIAL
from kit.gaussserver import Behaviour, GaussServer
from kit.gaussstore import Committed, Store, Table
from kit.postgres import Postgres

BY_CSN = {"parallel_decode_num": "2", "output_order": "1"}


def trusting() -> Behaviour:
    """A node that lets anybody in, with a quick timer."""
    return Behaviour(flush_seconds=0.05, hba="trust", replication_hba="trust")


@pytest.fixture
def cluster() -> Iterator[GaussCluster]:
    """Two nodes of a GaussDB, without SQL."""
    with GaussCluster(("dn1", "dn2"), COMMERCIAL, behaviour=trusting) as made:
        yield made


@pytest.fixture
def asked(servers: Callable[[int], Postgres]) -> Iterator[GaussServer]:
    """A node of a GaussDB that answers SQL."""
    with GaussCluster(("dn1",), COMMERCIAL, postgres=servers(15), behaviour=trusting) as made:
        yield made.servers["dn1"]


def small(store: Store) -> Table:
    """A table of one column."""
    return store.create_table("kit", "t", {"id": "int8"}, key=["id"])


def insert(store: Store, table: Table, *ids: int) -> Committed:
    """One transaction that inserts rows."""
    transaction = store.begin()
    for number in ids:
        transaction.insert(table, {"id": str(number)})
    return transaction.commit()


def records(bodies: list[bytes]) -> list[Record]:
    """The records of bodies of style b."""
    return [record for body in bodies for record in binary_records(body)]


def stream(server: GaussServer, commits: int, **options: str) -> list[Record]:
    """Read a CSN slot until it brought so many commits, once its last reader is seen as gone."""
    wait_until(lambda: not server.slots["s"].is_active, "the end of the last reader")
    got: list[Record] = []
    with Client(server.port, replication=True) as client:
        client.start("s", **{**BY_CSN, **options})
        while sum(record.kind == "C" for record in got) < commits:
            bodies = client.receive(1).bodies
            assert bodies, "the stream has ended early"
            got += records(bodies)
    return got


def refused(port: int, slot: str = "s", **options: str) -> str:
    """Begin a stream in vain; give the message."""
    with Client(port, replication=True) as client:
        with pytest.raises(ServerError) as caught:
            client.start(slot, **{"parallel_decode_num": "2", **options})
        return caught.value.fields["M"]


@pytest.mark.parametrize("batch", ["0", "1"])
@pytest.mark.parametrize("seed", range(3))
def test_a_csn_slot_goes_by_csn(cluster: GaussCluster, batch: str, seed: int) -> None:
    """The stream has the transactions of its node in the order of CSNs, each whole."""
    cluster.create_slots("s", output_order=1)
    history = History(cluster, seed, truncates=False)
    history.run(400)
    history.finish()
    for server in cluster.servers.values():
        committed = [of for of in server.store.committed if of.changes]
        by_csn = sorted(committed, key=lambda of: of.csn)
        assert by_csn != committed
        got = stream(server, len(by_csn), sending_batch=batch, skip_empty_xacts="true")
        assert [r.csn for r in got if r.kind == "B"] == [of.csn for of in by_csn]
        assert [r.lsn for r in got if r.kind == "C"] == [of.end_lsn for of in by_csn]
        rows = [(r.kind, r.lsn) for r in got if r.kind in "IUD"]
        assert rows == [(c.op, c.lsn) for of in by_csn for c in of.changes]


@pytest.mark.parametrize("seed", range(3))
def test_nothing_comes_late(cluster: GaussCluster, seed: int) -> None:
    """While a history runs, nothing comes at or below a CSN that a commit or a heartbeat told."""
    cluster.create_slots("s", output_order=1)
    history = History(cluster, seed, truncates=False, linger=0.8)
    server = cluster.servers["dn1"]
    server.behaviour.flush_seconds = 0.001
    csns: list[int] = []
    beats = 0
    with Client(server.port, replication=True) as client:
        client.start("s", enable_heartbeat="on", skip_empty_xacts="true", **BY_CSN)

        def read() -> None:
            nonlocal beats
            for body in client.receive(1).bodies:
                if body[:1] == b"\0" and body[12:13] == b"h":
                    beats += 1
                    passed.append(struct.unpack_from(">Q", body, 13)[0])
                    continue
                for record in binary_records(body):
                    if record.kind == "B":
                        assert record.csn > max(passed)
                        csns.append(record.csn)
                        passed.append(record.csn)

        passed = [0]
        for _ in range(80):
            history.run(10)
            read()
        history.finish()
        wanted = sorted(of.csn for of in server.store.committed if of.changes)
        while len(csns) < len(wanted):
            read()
    assert csns == wanted
    assert beats


def test_a_batch_ends_with_its_transaction(cluster: GaussCluster) -> None:
    """With sending-batch BEGIN and COMMIT are alone, and rows share a body with their own."""
    server = cluster.servers["dn1"]
    server.create_csn_slot("s")
    table = small(server.store)
    insert(server.store, table, 1, 2, 3)
    insert(server.store, table, 4)
    with Client(server.port, replication=True) as client:
        client.start("s", sending_batch="1", **BY_CSN)
        bodies = client.receive(6).bodies
    kinds = ["".join(record.kind for record in binary_records(body)) for body in bodies]
    assert kinds == ["B", "III", "C", "B", "I", "C"]


def test_a_transaction_waits_for_smaller_csns(cluster: GaussCluster) -> None:
    """What has a CSN below one that was drawn goes first, of this node only."""
    server, other = cluster.servers.values()
    server.create_csn_slot("s")
    table, elsewhere = small(server.store), small(other.store)
    foreign, late = other.store.begin(), server.store.begin()
    foreign.insert(elsewhere, {"id": "0"})
    late.insert(table, {"id": "1"})
    foreign.draw_csn()
    late.draw_csn()
    early = insert(server.store, table, 2)
    assert late.csn is not None
    with Client(server.port, replication=True) as client:
        client.start("s", **BY_CSN)
        assert not client.receive(1, 0.2).bodies
        late.commit()
        got = records(client.receive(6).bodies)
    assert [r.csn for r in got if r.kind == "B"] == [late.csn, early.csn]
    assert [r.lsn for r in got if r.kind == "C"] == sorted(
        (r.lsn for r in got if r.kind == "C"), reverse=True
    )


@pytest.mark.parametrize("framed", [False, True])
@pytest.mark.parametrize("is_stuck", [False, True])
def test_heartbeats_tell_csns(cluster: GaussCluster, *, framed: bool, is_stuck: bool) -> None:
    """A heartbeat of a CSN slot has the CSN up to which all was sent, and the next one of all."""
    server, other = cluster.servers.values()
    server.behaviour.heartbeat_framed = framed
    server.behaviour.is_idle_csn_stuck = is_stuck
    slot = server.create_csn_slot("s")
    table = small(server.store)

    def beat(client: Client) -> tuple[int, int]:
        (body,) = client.receive(1).bodies
        sent, following, _ = struct.unpack_from(">QQq", body, 13 if framed else 1)
        return sent, following

    with Client(server.port, replication=True) as client:
        client.start("s", enable_heartbeat="on", **BY_CSN)
        created = slot.confirmed_csn
        assert beat(client) == (created, created + 1)
        insert(other.store, small(other.store), 1)
        late = server.store.begin()
        late.insert(table, {"id": "1"})
        drawn = late.draw_csn()
        wait_until(lambda: beat(client)[1] == drawn + 1, "a new heartbeat")
        assert beat(client)[0] == (created if is_stuck else drawn - 1)
        late.commit()
        assert [record.kind for record in records(client.receive(3).bodies)] == ["B", "I", "C"]
        assert beat(client) == (drawn, drawn + 1)


def test_a_confirmation_stands_for_a_csn(cluster: GaussCluster) -> None:
    """A confirmed end is kept as its CSN, over a crash once it is saved; the rest comes again."""
    server = cluster.servers["dn1"]
    slot = server.create_csn_slot("s")
    table = small(server.store)
    done = [insert(server.store, table, number) for number in (1, 2, 3)]
    before = slot.confirmed_csn
    with Client(server.port, replication=True) as client:
        client.start("s", **BY_CSN)
        assert len(client.receive(9).bodies) == 9
        client.confirm(done[1].end_lsn)
        wait_until(lambda: slot.confirmed_csn == done[1].csn, "the confirmation")
        client.confirm(server.wal_end + 8)
        wait_until(lambda: bool(server.violations), "the violation")
    assert "that was not sent" in server.violations.pop()
    slot.confirmed_csn = done[1].csn
    assert [r.csn for r in stream(server, 1) if r.kind == "B"] == [done[2].csn]
    cluster.away("dn1")
    cluster.back("dn1")
    assert slot.confirmed_csn == before
    assert len(stream(server, 3)) == 9


def test_start_position(cluster: GaussCluster) -> None:
    """What has a smaller CSN is left out, and of the CSN itself what has a smaller LSN."""
    server = cluster.servers["dn1"]
    server.create_csn_slot("s")
    table = small(server.store)
    insert(server.store, table, 1)
    two = insert(server.store, table, 2, 3)
    insert(server.store, table, 4)
    got = stream(server, 2, start_position=f"{two.csn}/{two.changes[1].lsn}")
    assert [(r.kind, r.lsn) for r in got[:2]] == [("I", two.changes[1].lsn), ("C", two.end_lsn)]
    assert [r.kind for r in got[2:]] == ["B", "I", "C"]
    assert "could not parse" in refused(server.port, output_order="1", start_position="7")


def test_replicated_tables_need_a_slice(cluster: GaussCluster) -> None:
    """Rows of a replicated table come from the first slice only; without slice-id it ends."""
    server = cluster.servers["dn1"]
    server.create_csn_slot("s")
    table = cluster.create_table("kit", "r", {"id": "int8"}, key=["id"], is_replicated=True)["dn1"]
    insert(server.store, table, 1)
    with pytest.raises(ServerError, match="slice-id"):
        stream(server, 1)
    assert [r.kind for r in stream(server, 1, slice_id="0")] == ["B", "I", "C"]
    assert [r.kind for r in stream(server, 1, slice_id="1")] == ["B", "C"]


def test_slot_and_order_must_fit(cluster: GaussCluster) -> None:
    """A CSN slot wants output-order 1, another one 0; options by CSN want it too."""
    server = cluster.servers["dn1"]
    server.create_csn_slot("s")
    server.create_slot("lsn")
    assert "does not fit" in refused(server.port)
    assert "does not fit" in refused(server.port, "lsn", output_order="1")
    for name, value in (
        ("slice_id", "0"),
        ("start_position", "1/1"),
        ("logical_receiver_num", "2"),
    ):
        assert "output-order" in refused(server.port, "lsn", **{name: value})


def test_slots_by_sql(asked: GaussServer) -> None:
    """The third argument chooses the order, and each kind shows its own position only."""
    shown = (
        "SELECT confirmed_flush, confirmed_csn::text FROM pg_replication_slots WHERE slot_name = "
    )
    with Client(asked.port) as client:
        created = "SELECT * FROM pg_create_logical_replication_slot"
        last = asked.store.next_csn - 1
        ((name, told),) = client.query(f"{created}('c', 'mppdb_decoding', 1)")
        high, low = (told or "").split("/")
        assert (name, int(high, 16) << 32 | int(low, 16)) == ("c", last)
        client.query(f"{created}('l', 'mppdb_decoding', '0')")
        assert client.query(shown + "'c'") == [(None, str(last))]
        ((flush, csn),) = client.query(shown + "'l'")
        assert flush
        assert csn is None
        with pytest.raises(ServerError, match="output_order"):
            client.query(f"{created}('x', 'mppdb_decoding', 2)")
