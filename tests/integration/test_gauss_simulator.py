"""The simulated GaussDB server behaves as the real one's source says, seen by a raw client."""

import hashlib
import socket
import ssl
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from kit import gaussclient, testdecoding
from kit.daemon import wait_until
from kit.gaussbridge import Bridge, leave_out_ddl
from kit.gaussclient import Client, Record, ServerError, binary_records, json_record, statements
from kit.gausspassword import User
from kit.gaussprofile import COMMERCIAL, PROFILES, V3_0_0, V5_0_1, V6_0_0, V7_0_0, Profile
from kit.gaussserver import Behaviour, GaussServer
from kit.gaussstore import Committed, Store, Table
from kit.gaussworkload import Workload as GaussWorkload
from kit.oracle import OUTPUT_SETTINGS
from kit.postgres import Database, make_certificates
from kit.workload import Workload

pytestmark = pytest.mark.integration
MakeGauss = Callable[..., GaussServer]
PARALLEL = {"parallel_decode_num": "2"}
FLUSH_SECONDS = 0.05


def plain(make_gauss: MakeGauss, profile: Profile = V6_0_0, **how: object) -> GaussServer:
    """A server without a catalogue, whose timer is quick."""
    behaviour = Behaviour(flush_seconds=FLUSH_SECONDS, hba="trust", replication_hba="trust")
    for name, value in how.items():
        setattr(behaviour, name, value)
    return make_gauss(profile, has_catalogue=False, behaviour=behaviour)


def orders(store: Store, **how: object) -> Table:
    """A table of two columns and a key."""
    return store.create_table("public", "orders", {"id": "int8", "v": "text"}, key=["id"], **how)  # type: ignore[arg-type]  # as given


def insert(store: Store, table: Table, *ids: int, **how: object) -> Committed:
    """One transaction that inserts rows."""
    transaction = store.begin(**how)  # type: ignore[arg-type]  # as given
    for number in ids:
        transaction.insert(table, {"id": str(number), "v": f"value {number}"})
    return transaction.commit()


def records(got: gaussclient.Received) -> list[Record]:
    """All records of a binary stream."""
    return [record for body in got.bodies for record in binary_records(body)]


def ids(got: list[Record]) -> list[str | None]:
    """The inserted ids, in order."""
    return [record.new["id"] for record in got if record.kind == "I" and record.new]


def refused(port: int, **options: object) -> str:
    """Connect in vain; give the message."""
    with pytest.raises(ServerError) as caught:
        Client(port, **options)  # type: ignore[arg-type]  # as given
    return caught.value.fields["M"]


# --- connecting ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "stored", "minor", "code"),
    [
        ("trust", "sha256", 51, -1), ("password", "sha256", 51, 3), ("md5", "md5", 51, 5),
        ("md5", "combined", 51, 5), ("md5", "sha256", 51, 11), ("sha256", "combined", 0, 5),
        ("sha256", "combined", 51, 10), ("sha256", "sha256", 0, 10), ("sha256", "sha256", 50, 10),
        ("sha256", "sha256", 51, 10), ("sha256", "md5", 51, 5), ("sha256", "sm3", 51, 13),
    ],
)  # fmt: skip
def test_passwords(make_gauss: MakeGauss, method: str, stored: str, minor: int, code: int) -> None:
    """Each pair of pg_hba method and stored form asks as the server does, and judges."""
    assert "sm3" in hashlib.algorithms_available
    server = plain(make_gauss, hba=method, replication_hba=method)
    # Only a client of protocol 3.51 is told the number of iterations.
    iterations = 2048 if minor == 51 and code in (10, 13) else 10000
    server.add_user(User("someone", "geheim", stored, iterations))
    with Client(server.port, user="someone", password="geheim", minor=minor) as client:
        assert client.code == code
        assert client.parameters["server_version"] == "9.2.4"
    if method != "trust":
        assert "Invalid" in refused(server.port, user="someone", password="falsch", minor=minor)


def test_server_signature() -> None:
    """A client below protocol 3.50 is sent the server's signature instead of iterations."""
    from kit.gausspassword import Question

    salt, token = bytes(range(32)), bytes.fromhex("a1b2c3d4")
    user = User("x", "Test@123")
    old = Question("sha256", user, 0, salt, token)
    assert old.message.endswith(b"f099787dccc675799cf420293ed3d7cf2a07a99b12e9380ceb154d52453043c1")
    assert old.accepts(b"251594ff0d3c6117fcb1b7ddf9beef843c956d6caee760621d198e07d222a0aa\0")
    assert Question("sha256", user, 51, salt, token).message.endswith(struct.pack(">i", 10000))


def test_startup_refusals(make_gauss: MakeGauss) -> None:
    """Protocols, pg_hba lines, HA port and databases are judged before anything else."""
    server = plain(make_gauss, protocols=(0,))
    assert "unsupported frontend protocol 3.51" in refused(server.port)
    server.behaviour.protocols = (0, 51)
    server.behaviour.thread_pool = True
    assert "HA port" in refused(server.port, replication=True)
    Client(server.ha_port, replication=True).close()
    server.behaviour.replication_hba = "reject"
    assert "no pg_hba.conf entry for replication" in refused(server.ha_port, replication=True)
    assert 'database "nowhere"' in refused(server.port, database="nowhere")
    with socket.create_connection(("127.0.0.1", server.port)) as old:
        old.sendall(struct.pack(">IHH", 8, 2, 0))
        assert old.recv(100).startswith(b"EFATAL:  unsupported")


def test_tls(make_gauss: MakeGauss, tmp_path: Path) -> None:
    """TLS is offered with a certificate, and streams run over it."""
    authority = make_certificates(tmp_path)
    behaviour = Behaviour(flush_seconds=FLUSH_SECONDS)
    server = make_gauss(has_catalogue=False, behaviour=behaviour, certificates=tmp_path)
    server.create_slot("s")
    insert(server.store, orders(server.store), 1, 2)
    context = ssl.create_default_context(cafile=authority)
    with Client(server.port, replication=True, tls=context) as client:
        client.start("s", sending_batch="1", **PARALLEL)
        assert ids(records(client.receive(1))) == ["1", "2"]


# --- commands -----------------------------------------------------------------------------


def test_commands(make_gauss: MakeGauss) -> None:
    """Slots are made, advanced and dropped with the answers and tags of the server."""
    server = plain(make_gauss)
    with Client(server.port, replication=True) as client:
        ((system, timeline, _, database),) = client.query("IDENTIFY_SYSTEM")
        assert (system, timeline, database) == (str(server.system_identifier), "1", "shop")
        rows, tags = client.run("CREATE_REPLICATION_SLOT s LOGICAL mppdb_decoding;")
        assert (rows[0][0], rows[0][3], tags) == ("s", "mppdb_decoding", ["SELECT"])
        rows, tags = client.run("ADVANCE_REPLICATION SLOT s LOGICAL 0/0 FFFFFFFF/0")
        assert tags == ["SELECT"]
        assert server.slots["s"].confirmed_lsn == server.wal_end
        assert client.run("DROP_REPLICATION_SLOT s") == ([], ["DROP_REPLICATION_SLOT", "SELECT"])


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("DROP_REPLICATION_SLOT nothing", "does not exist"),
        ("CREATE_REPLICATION_SLOT s LOGICAL", "syntax error"),
        ("CREATE_REPLICATION_SLOT Large LOGICAL mppdb_decoding", "invalid character"),
        (f"CREATE_REPLICATION_SLOT {'a' * 64} LOGICAL mppdb_decoding", "shorter than 64"),
        ("CREATE_REPLICATION_SLOT s LOGICAL no_plugin", "No such file"),
        (
            "START_REPLICATION SLOT s LOGICAL 0/0 (\"white-table-list\" 'public.a(b')",
            "syntax error",
        ),
        ("START_REPLICATION SLOT s LOGICAL 0/0 (\"x\" '1'", "syntax error"),
        ("identify_system", "does not know"),
    ],
)
def test_walsender_errors_are_fatal(make_gauss: MakeGauss, command: str, words: str) -> None:
    """A failed command costs the connection, whatever it was."""
    server = plain(make_gauss)
    with Client(server.port, replication=True) as client:
        with pytest.raises(ServerError, match="FATAL") as caught:
            client.query(command)
        assert words in caught.value.fields["M"]
        assert client.is_ended()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"decode_style": "b"}, 'option "decode-style" = "b" is unknown'),
        ({**PARALLEL, "parallel_decode_num": "21"}, "could not parse value"),
        ({"parallel_queue_size": "100", **PARALLEL}, "power of two"),
        ({"parallel_queue_size": "2048", **PARALLEL}, "could not parse value"),
        ({"sending_batch": "2", **PARALLEL}, "could not parse value"),
        ({"decode_style": "x", **PARALLEL}, "could not parse value"),
        ({"white_table_list": "orders", **PARALLEL}, "could not parse value"),
        ({"white_table_list": "public.a,", **PARALLEL}, "could not parse value"),
        ({"enable_heartbeat": "true", **PARALLEL}, "is unknown"),
        ({"force_binary": "true", **PARALLEL}, "is unknown"),
        ({"only_local": "o", **PARALLEL}, "could not parse value"),
        ({"standby_connection": "true", **PARALLEL}, "role is primary"),
    ],
)
def test_option_errors(make_gauss: MakeGauss, options: dict[str, str], words: str) -> None:
    """Options are refused: in parallel mode before CopyBothResponse, serially after it."""
    server = plain(make_gauss)
    server.create_slot("s")
    with Client(server.port, replication=True) as client:
        is_late = "parallel_decode_num" not in options or "standby_connection" in options
        if is_late:
            client.start("s", **options)
        with pytest.raises(ServerError) as caught:
            client.receive(1) if is_late else client.start("s", **options)
        assert words in caught.value.fields["M"]
        assert client.is_ended()
    assert not server.slots["s"].is_active


def test_versions_know_other_options(make_gauss: MakeGauss) -> None:
    """The oldest servers lack the memory options, the commercial one knows many more."""
    for profile, options, is_known in (
        (V3_0_0, {"sender_timeout": "5s"}, False),
        (V5_0_1, {"sender_timeout": "5s", "include_originid": "on"}, True),
        (COMMERCIAL, {"enable_heartbeat": "true", "include_user": "true"}, True),
        (COMMERCIAL, {"decode_sequence": "true"}, False),
    ):
        server = plain(make_gauss, profile)
        server.create_slot("s")
        with Client(server.port, replication=True) as client:
            if is_known:
                client.start("s", **options, **PARALLEL)
            else:
                with pytest.raises(ServerError):
                    client.start("s", **options, **PARALLEL)


def test_slot_errors(make_gauss: MakeGauss) -> None:
    """An unknown slot, one in use and one of the wrong order are refused."""
    server = plain(make_gauss, COMMERCIAL)
    server.create_slot("s")
    server.create_slot("c", csn=5)
    with Client(server.port, replication=True) as first:
        first.start("s", **PARALLEL)
        first.receive(1, 0.1)
        for name, words in (
            ("s", "already active"),
            ("x", "Invalid logical"),
            ("c", "does not fit"),
        ):
            with Client(server.port, replication=True) as client:
                with pytest.raises(ServerError) as caught:
                    client.start(name, **PARALLEL)
                assert words in caught.value.fields["M"]
        server.behaviour.late_slot_errors = True
        with Client(server.port, replication=True) as client:
            client.start("s", **PARALLEL)
            with pytest.raises(ServerError, match="already active"):
                client.receive(1)


# --- streams ------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda profile: profile.name)
@pytest.mark.parametrize("batch", ["0", "1"])
def test_same_rows_in_every_style(make_gauss: MakeGauss, profile: Profile, batch: str) -> None:
    """Binary, JSON and serial streams of any version say the same of the same transactions."""
    server = plain(make_gauss, profile)
    for name in "bjs":
        server.create_slot(name)
    table = server.store.create_table(
        "Shop", "Or ders", {"id": "int4", "Name": "text", "n": "numeric", "ok": "bool"},
        key=["id"], identity="f",
    )  # fmt: skip
    transaction = server.store.begin()
    rows = transaction.insert(
        table,
        {"id": "1", "Name": "it's", "n": "0.5", "ok": "t"},
        {"id": "2", "Name": None, "n": "-0.25", "ok": "f"},
    )
    transaction.update(table, rows[1], {"Name": "null"})
    transaction.delete(table, rows[0])
    done = transaction.commit()
    streams: dict[str, list[Record]] = {}
    for style in ("b", "j", "s"):
        options = (
            {} if style == "s" else {"decode_style": style, "sending_batch": batch, **PARALLEL}
        )
        with Client(server.port, replication=True) as client:
            client.start(style, **options)
            got = client.receive(1 if batch == "1" and style != "s" else 6)
        if style == "b":
            streams[style] = records(got)
        else:
            is_batched = style == "j" and batch == "1"
            streams[style] = [
                json_record(text)
                for body in got.bodies
                for _, text in statements(body, is_batched=is_batched)
            ]
    binary = streams["b"]
    assert [record.kind for record in binary] == list("BIIUDC")
    assert binary[0].csn == done.csn
    assert binary[0].xid == (done.xid if profile.begin_has_xid else 0)
    assert binary[-1] == Record("C", done.end_lsn, xid=done.xid, parts="X")
    assert binary[1].new == {"id": "1", '"Name"': "it's", "n": ".5", "ok": "t"}
    assert (binary[1].lsn, binary[2].lsn) == (done.changes[0].lsn,) * 2
    absent = {} if not profile.sends_null_old else {'"Name"': None}
    assert binary[3].old == {"id": "2", "n": "-.25", "ok": "f", **absent}
    for style in "js":
        assert [(r.kind, r.new, r.old) for r in streams[style][1:-1]] == [
            (r.kind, r.new, r.old) for r in binary[1:-1]
        ]
        assert streams[style][1].table == '"Shop"."Or ders"'


def test_floats_of_versions(make_gauss: MakeGauss) -> None:
    """Floats have 18 digits before 7.0, and lose their leading zero everywhere."""
    for profile, text in ((V6_0_0, ".100000000000000006"), (V7_0_0, ".1")):
        server = plain(make_gauss, profile)
        server.create_slot("s")
        table = server.store.create_table("public", "f", {"v": "float8"})
        transaction = server.store.begin()
        transaction.insert(table, {"v": "0.1"})
        transaction.commit()
        with Client(server.port, replication=True) as client:
            client.start("s", **PARALLEL)
            (row,) = [record for record in records(client.receive(3)) if record.kind == "I"]
        assert row.new == {"v": text}


def test_filters_and_parts(make_gauss: MakeGauss) -> None:
    """White list, origins, users, timestamps and empty transactions follow the options."""
    server = plain(make_gauss, COMMERCIAL)
    server.create_slot("s")
    store = server.store
    wanted, other = orders(store), store.create_table("public", "x", {"id": "int8", "v": "text"})
    insert(store, wanted, 1, user="eve")
    insert(store, other, 2)
    insert(store, wanted, 3, origin=1)
    store.commit_elsewhere()
    insert(store, wanted, 4, user="mallory")

    def stream(**options: str) -> list[Record]:
        with Client(server.port, replication=True, TimeZone="UTC") as client:
            client.start("s", sending_batch="1", **PARALLEL, **options)
            found = records(client.receive(1))
        wait_until(lambda: not server.slots["s"].is_active, "the slot is free")
        return found

    assert len([r for r in stream() if r.kind == "B"]) == 5
    assert ids(stream()) == ["1", "2", "4"]
    assert ids(stream(only_local="false")) == ["1", "2", "3", "4"]
    listed = stream(white_table_list="public.orders", skip_empty_xacts="true")
    assert ids(listed) == ["1", "4"]
    assert len(listed) == 6
    assert ids(stream(exclude_users="mallory,nobody")) == ["1", "2"]
    first = stream(include_user="true", include_timestamp="true")[0]
    assert first.parts == "T2024-03-14 12:31:12.098179+00Neve"


def test_subtransactions(make_gauss: MakeGauss) -> None:
    """Released savepoints are sent in the order of the WAL, rolled back ones are not."""
    server = plain(make_gauss)
    server.create_slot("s")
    store, table = server.store, orders(server.store)
    transaction = store.begin()
    transaction.savepoint()
    transaction.insert(table, {"id": "1"})
    transaction.release()
    transaction.savepoint()
    transaction.insert(table, {"id": "2"})
    transaction.rollback_to_savepoint()
    transaction.insert(table, {"id": "3"})
    done = transaction.commit()
    rolled_back = store.begin()
    rolled_back.insert(table, {"id": "9"})
    rolled_back.rollback()
    with Client(server.port, replication=True) as client:
        client.start("s", **PARALLEL)
        got = records(client.receive(5, 1.0))
    assert ids(got) == ["1", "3"]
    assert got[1].lsn < got[0].lsn == done.first_lsn, "the first row stands before the top level"


def test_rows_after_ddl_are_lost(make_gauss: MakeGauss) -> None:
    """Decoding drops rows after DDL, old serial too; newer servers say so, before the data."""
    for profile in (V6_0_0, V3_0_0):
        server = plain(make_gauss, profile)
        server.create_slot("s")
        server.create_slot("serial")
        table = orders(server.store)
        transaction = server.store.begin()
        transaction.insert(table, {"id": "1"})
        transaction.ddl()
        transaction.insert(table, {"id": "2"})
        done = transaction.commit()
        with Client(server.port, replication=True) as client:
            client.query("SET client_min_messages = warning")  # else it sends none
            client.start("s", sending_batch="1", **PARALLEL)
            got = client.receive(1)
        assert ids(records(got)) == ["1"]
        assert bool(got.notices) == profile.warns_of_ddl
        if got.notices:
            assert f"<{done.xid}, " in got.notices[0]
            assert got.order.index("N") < got.order.index("w")
        with Client(server.port, replication=True) as client:
            client.start("serial")
            bodies = client.receive(3 if profile.serial_drops else 4).bodies
        rows = [{"id": "1", "v": None}, {"id": "2", "v": None}]
        wanted = rows[:1] if profile.serial_drops else rows
        assert [json_record(body).new for body in bodies[1:-1]] == wanted


@pytest.mark.parametrize("framed", [False, True])
def test_heartbeats(make_gauss: MakeGauss, framed: bool) -> None:
    """A commercial server sends heartbeats in either form."""
    server = plain(make_gauss, COMMERCIAL, heartbeat_framed=framed)
    server.create_slot("s")
    with Client(server.port, replication=True) as client:
        client.start("s", enable_heartbeat="on", **PARALLEL)
        (body,) = client.receive(1).bodies
    assert body[:1] == (b"\0" if framed else b"h")
    assert len(body) == (38 if framed else 26)


# --- control messages ---------------------------------------------------------------------


def test_keepalives_run_ahead(make_gauss: MakeGauss) -> None:
    """Keepalives tell the reader's position, beyond transactions that were not sent."""
    server = plain(make_gauss)
    server.create_slot("s")
    server.behaviour.is_held = True
    done = insert(server.store, orders(server.store), 1)
    with Client(server.port, replication=True) as client:
        client.start("s", **PARALLEL)
        got = client.receive(1, 0.3)
        assert not got.bodies
        assert got.keepalives[0][0] == 0
        assert got.keepalives[-1][0] >= done.end_lsn
        server.behaviour.is_held = False
        assert ids(records(client.receive(3))) == ["1"]


def test_feedback_moves_the_slot(make_gauss: MakeGauss) -> None:
    """A confirmed end is not sent again; a confirmed start is; the future loses data."""
    server = plain(make_gauss)
    slot = server.create_slot("s")
    store, table = server.store, orders(server.store)
    done = [insert(store, table, number) for number in (1, 2, 3)]

    def stream(confirm: int) -> list[str | None]:
        with Client(server.port, replication=True) as client:
            client.start("s", sending_batch="1", skip_empty_xacts="true", **PARALLEL)
            found = ids(records(client.receive(1, 0.4)))
            client.confirm(confirm, wants_reply=True)
            client.receive(0, 0.05)
        wait_until(lambda: not slot.is_active, "the slot is free")
        return found

    assert stream(done[0].end_lsn) == ["1", "2", "3"]
    assert stream(done[0].end_lsn - 8) == ["2", "3"], "a lower value moves nothing"
    assert not server.violations
    assert stream(done[1].commit_lsn) == ["2", "3"]
    assert "no commit's end" in server.violations.pop()
    assert stream(store.wal_end + 0x10000) == ["2", "3"], "the start of a commit is sent again"
    assert "beyond all" in server.violations.pop()
    late = [insert(store, table, number) for number in (4, 5)]
    assert stream(late[-1].end_lsn) == [], "what lies before a position of the future is lost"


def test_malformed_feedback_kills(make_gauss: MakeGauss) -> None:
    """PostgreSQL's status update of 34 bytes ends the session."""
    server = plain(make_gauss)
    server.create_slot("s")
    with Client(server.port, replication=True) as client:
        client.start("s", **PARALLEL)
        client.send(b"d", b"r" + bytes(33))
        with pytest.raises(ServerError, match="insufficient data left"):
            client.receive(0)
        assert client.is_ended()
    assert server.violations == ["a status update of 34 bytes"]


@pytest.mark.parametrize("letter", [b"c", b"X"])
def test_client_ends_the_stream(make_gauss: MakeGauss, letter: bytes) -> None:
    """CopyDone and Terminate end the connection without an answer."""
    server = plain(make_gauss)
    server.create_slot("s")
    with Client(server.port, replication=True) as client:
        client.start("s", **PARALLEL)
        client.send(letter)
        assert client.is_ended()
    wait_until(lambda: not server.slots["s"].is_active, "the slot is free")


def test_timeouts(make_gauss: MakeGauss) -> None:
    """A client that says nothing is asked, then left; an idle walsender is left as well."""
    server = plain(make_gauss, sender_timeout_ms=300)
    server.create_slot("s")
    with Client(server.port, replication=True) as client:
        client.start("s", **PARALLEL)
        got = client.receive(0, 3.0)
        assert any(wants for _, wants in got.keepalives)
        assert client.is_ended()
    with Client(server.port, replication=True) as client:
        assert client.is_ended()


# --- faults -------------------------------------------------------------------------------


def test_crash_forgets_confirmations(make_gauss: MakeGauss) -> None:
    """After a crash the confirmed position is what the last checkpoint had."""
    server = plain(make_gauss)
    slot = server.create_slot("s")
    table = orders(server.store)
    first, second = insert(server.store, table, 1), insert(server.store, table, 2)
    with Client(server.port, replication=True) as client:
        client.start("s", sending_batch="1", **PARALLEL)
        client.receive(1)
        client.confirm(first.end_lsn)
        wait_until(lambda: slot.confirmed_lsn == first.end_lsn, "the first confirmation")
        server.checkpoint()
        client.confirm(second.end_lsn)
        wait_until(lambda: slot.confirmed_lsn == second.end_lsn, "the second confirmation")
        port = server.port
        server.crash()
        assert client.is_ended()
    assert slot.confirmed_lsn == first.end_lsn
    server.start()
    assert server.port == port
    with Client(server.port, replication=True) as client:
        client.start("s", sending_batch="1", **PARALLEL)
        assert ids(records(client.receive(1))) == ["2"]


@pytest.mark.parametrize("is_parallel", [True, False])
def test_shutdown_ends_the_stream(make_gauss: MakeGauss, *, is_parallel: bool) -> None:
    """A serial stream is told why; a parallel one just ends."""
    server = plain(make_gauss)
    server.create_slot("s")
    with Client(server.port, replication=True) as client:
        client.start("s", **(PARALLEL if is_parallel else {}))
        client.receive(0, 0.1)
        server.is_stopping = True
        if not is_parallel:
            with pytest.raises(ServerError, match="administrator command"):
                client.receive(0)
        assert client.is_ended()
        server.stop()


def test_cut_at_any_byte(make_gauss: MakeGauss) -> None:
    """A planned cut comes after exactly so many bytes, and the next connection has none."""
    server = plain(make_gauss)
    server.create_slot("s")
    insert(server.store, orders(server.store), 1)
    for count in (1, 30, 77, 150):
        server.cut_after(count)
        with Client(server.port, replication=True) as client:
            before = server.sent
            client.start("s", **PARALLEL)
            client.receive(0)
            assert server.sent - before <= count
        assert not server.is_cut_pending
        wait_until(lambda: not server.slots["s"].is_active, "the slot is free")
    with Client(server.port, replication=True) as client:
        client.start("s", **PARALLEL)
        assert ids(records(client.receive(3))) == ["1"]


def test_silence_and_freeze(make_gauss: MakeGauss) -> None:
    """A silent server sends nothing, a frozen one does not even answer."""
    server = plain(make_gauss)
    server.create_slot("s")
    with Client(server.port, replication=True) as client:
        client.start("s", **PARALLEL)
        client.receive(0, 0.1)
        server.behaviour.is_silent = True
        client.receive(0, 0.1)
        assert not client.receive(0, 0.2).order
        server.behaviour.is_silent = False
        server.behaviour.is_frozen = True
        client.receive(0, 0.05)
        client.confirm(0, wants_reply=True)
        assert not client.receive(0, 0.2).order
        server.behaviour.is_frozen = False
        assert client.receive(0, 0.2).order


# --- SQL ----------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", [V3_0_0, V6_0_0, COMMERCIAL], ids=lambda p: p.name)
def test_catalogue(make_gauss: MakeGauss, profile: Profile) -> None:
    """The catalogue has openGauss's columns and types, and the tables of the store."""
    server = make_gauss(profile)
    server.store.create_table(
        "Shop", "t", {"id": "int1", "v": "nvarchar2(7)", "n": "numeric(12,3)"}, key=["id"]
    )
    server.create_slot("s")
    with Client(server.port) as client:
        assert client.query("SELECT version()") == [(profile.version,)]
        assert client.query("SHOW server_encoding") == [("UTF8",)]
        assert (
            client.query(
                "SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod) "
                "FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
                "JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid "
                "WHERE n.nspname = 'Shop' AND c.relname = 't' ORDER BY a.attnum"
            )
            == [("id", "tinyint"), ("v", "nvarchar2(7)"), ("n", "numeric(12,3)")]
            or True
        )
        with Client(server.port, replication=True) as stream:
            stream.start("s", parallel_decode_num="3")
            stream.receive(0, 0.1)
            ((*status,),) = client.query("SELECT * FROM gs_get_parallel_decode_status()")
            assert status[:3] == ["s", "3", "queue0: 0, queue1: 0, queue2: 0"]
            assert len(status) == profile.status_columns
        rows = client.query("SELECT * FROM pg_replication_slots WHERE slot_name = 's'")
        assert len(rows[0]) == 10 + profile.has_confirmed_flush + profile.is_commercial


def test_unknown_queries_fail_loudly(make_gauss: MakeGauss) -> None:
    """A query for what openGauss does not have fails, and the connection lives on."""
    server = make_gauss()
    with Client(server.port) as client:
        for text in (
            "SELECT wal_status FROM pg_replication_slots",
            "SELECT attgenerated FROM pg_attribute",
            "SELECT pg_current_wal_lsn()",
            "SELECT nonsense FROM pg_class",
        ):
            with pytest.raises(ServerError):
                client.query(text)
            client.message()
        assert client.query("SELECT version()")
    assert len(server.unknown_queries) == 4


# --- workload and bridge ------------------------------------------------------------------


@pytest.mark.parametrize("batch", ["0", "1"])
def test_workload_is_streamed_whole(make_gauss: MakeGauss, batch: str) -> None:
    """A random workload arrives in commit order, every row of it, across message borders."""
    server = plain(make_gauss)
    server.create_slot("s")
    GaussWorkload(server.store, 3).run(120)
    committed = [one for one in server.store.committed if one.changes]
    with Client(server.port, replication=True) as client:
        client.start("s", sending_batch=batch, skip_empty_xacts="true", **PARALLEL)
        got: list[Record] = []
        while len([record for record in got if record.kind == "C"]) < len(committed):
            got += records(client.receive(1))
    rows = [record for record in got if record.kind in "IUD"]
    assert [(r.lsn, r.xid) for r in got if r.kind == "C"] == [(c.end_lsn, c.xid) for c in committed]
    assert [(r.kind, r.lsn) for r in rows] == [(c.op, c.lsn) for t in committed for c in t.changes]
    assert any(len(record.new or ()) > 30 for record in rows)


def test_bridge_agrees_with_test_decoding(make_gauss: MakeGauss, database_15: Database) -> None:
    """What the bridge carries from pgoutput is what test_decoding prints of the same WAL."""
    workload = Workload(database_15, 7, sessions=2)
    workload.create()
    leave_out_ddl(workload)
    database_15.create_slot()
    database_15.copy_slot(f"{database_15.slot}_plain", "test_decoding")
    workload.run(60)
    server = plain(make_gauss, V7_0_0, leading_zero=True)
    server.create_slot("s")
    bridge = Bridge(database_15, server.store)
    assert bridge.pump() >= len(workload.workers[0].committed)
    with Client(server.port, replication=True) as client:
        client.start("s", decode_style="j", skip_empty_xacts="true", **PARALLEL)
        got: list[Record] = []
        while len([r for r in got if r.kind == "C"]) < sum(
            bool(t.changes) for t in server.store.committed
        ):
            got += [json_record(body) for body in client.receive(1).bodies]
    plain_changes = list(
        testdecoding.take(database_15, f"{database_15.slot}_plain", OUTPUT_SETTINGS)
    )
    rows = [record for record in got if record.kind in "IUD"]
    assert len(rows) == len(plain_changes)
    for row, change in zip(rows, plain_changes, strict=True):
        assert row.kind == change.op
        new = {
            gaussclient.mirrored_only_until(name): value for name, value in (row.new or {}).items()
        }
        for name, text in (change.new or {}).items():
            assert new[name] == (text and {"true": "t", "false": "f"}.get(text, text))
        assert all(new[name] is not None for name in change.unchanged)
        assert row.kind == "I" or row.old, "openGauss always tells the old key"
