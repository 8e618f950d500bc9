"""Connections: to a scripted server, the simulated GaussDB, and a real PostgreSQL.

What both products have in common (TLS, log-in with trust, password and md5, the simple
query, errors) is tested against the real one.
"""

import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.gausspassword import User
from kit.gaussserver import Behaviour, GaussServer
from kit.gaussstore import Store
from kit.postgres import Postgres, make_certificates
from kit.scripted import Peer, ScriptedServer, answer, error, notice

from gaussdecode.errors import SequenceError, SourceError, SourceRefusedError, WireError
from gaussdecode.protocol.gaussdb import messages
from gaussdecode.source.address import SourceAddress
from gaussdecode.source.gaussdb.connection import GaussConnection, connect
from gaussdecode.source.pinned import Use, startup_parameters

PASSWORD = "Gauss@123"
MINOR_51 = 3 << 16 | 51


def address(dsn: str, password: str | None = None) -> SourceAddress:
    """An address whose operator allows everything."""
    return SourceAddress(dsn, password, True)


# ---- a scripted server: what a real one does rarely ----------------------------------------


def play(*scripts: Callable[[Peer], None]) -> ScriptedServer:
    """A server for these connections."""
    return ScriptedServer(*scripts)


def reach(
    server: ScriptedServer, extra: str = "", *, is_replication: bool = True
) -> GaussConnection:
    """Connect to it."""
    dsn = server.dsn(f"sslmode=disable {extra}")
    return connect(address(dsn, PASSWORD), is_replication=is_replication)


def test_startup_of_both_kinds() -> None:
    """Replication names its style; SQL leaves the style to database and role."""
    asked: list[dict[str, str]] = []

    def script(peer: Peer) -> None:
        asked.append(peer.log_in())

    with play(script, script) as server:
        reach(server).close()
        reach(server, "application_name=mine", is_replication=False).close()
    assert asked[0] == {
        "user": "gaussdecode",
        "database": "shop",
        "application_name": "gaussdecode",
        "client_encoding": "UTF8",
        "replication": "database",
        **startup_parameters(Use.GAUSSDB_STREAM),
    }
    assert asked[0]["DateStyle"] == "ISO,YMD"
    assert asked[1] == {
        "user": "gaussdecode",
        "database": "shop",
        "application_name": "mine",
        "client_encoding": "UTF8",
        **startup_parameters(Use.GAUSSDB_SQL),
    }
    assert "DateStyle" not in asked[1]


def test_old_server_is_asked_again_in_its_own_protocol() -> None:
    """3.51 first; a refusal of that leads to 3.0, any other does not."""
    versions = []

    def refuse(peer: Peer) -> None:
        versions.append(peer.read_startup()[:4])
        peer.send(error("0A000", "unsupported frontend protocol 3.51: server supports 1.0 to 3.0"))

    def accept(peer: Peer) -> None:
        peer.log_in()

    with play(refuse, accept) as server:
        reach(server).close()
    assert versions == [struct.pack(">I", MINOR_51)]

    def refuse_user(peer: Peer) -> None:
        peer.read_startup()
        peer.send(error("28000", "Forbid remote connection with initial user."))

    with play(refuse_user) as server, pytest.raises(SourceRefusedError, match="make a role"):
        reach(server)


def test_bytes_may_come_one_by_one() -> None:
    """The network cuts where it likes."""

    def script(peer: Peer) -> None:
        peer.log_in()
        assert peer.read_message() == (b"Q", b"SELECT\0")
        peer.send_slowly(notice("look") + answer(("a", "b"), ("1", None)))

    with play(script) as server, reach(server) as connection:
        assert connection.query_table("SELECT") == [{"a": "1", "b": None}]
        assert connection.parameters == {"server_encoding": "UTF8"}
        assert [fields["M"] for fields in connection.notices] == ["look"]
        assert not connection.is_encrypted


def test_error_on_a_replication_connection_ends_it() -> None:
    """The server closes without another word; whatever is asked then gets the same answer."""

    def script(peer: Peer) -> None:
        peer.log_in()
        peer.read_message()
        peer.send(error("42704", 'replication slot "x" does not exist'))

    with play(script) as server:
        connection = reach(server)
        with pytest.raises(SourceRefusedError, match="slot create") as caught:
            connection.query("DROP_REPLICATION_SLOT x")
        with pytest.raises(SourceRefusedError, match="slot create"):
            connection.query("IDENTIFY_SYSTEM")
    assert caught.value.sqlstate == "42704"


def test_error_on_an_sql_connection_does_not() -> None:
    """The next statement works."""

    def script(peer: Peer) -> None:
        peer.log_in()
        peer.read_message()
        peer.send(
            error("42601", "no", S="ERROR"), messages.frontend(messages.Tag.READY.value, b"I")
        )
        peer.read_message()
        peer.send(answer(("a",), ("1",)))

    with play(script) as server, reach(server, is_replication=False) as connection:
        with pytest.raises(SourceRefusedError, match="no"):
            connection.query("SELEC")
        assert connection.query("SELECT") == [("1",)]


def test_stream_starts_and_keeps_what_came_with_it() -> None:
    """Notices and settings may come before, data right behind."""
    begin = messages.copy_data(b"w" + bytes(24) + b"x")

    def script(peer: Peer) -> None:
        peer.log_in()
        assert peer.read_message()[0] == b"Q"
        setting = messages.frontend(messages.Tag.PARAMETER.value, b"a\0b\0")
        peer.send(
            notice("wait"),
            setting,
            messages.frontend(messages.Tag.COPY_BOTH.value, bytes(3)),
            begin,
        )
        assert peer.read_message() == (b"d", b"r")
        assert peer.read_message() == (b"c", b"")
        assert peer.read_message() == (b"X", b"")

    with play(script) as server:
        connection = reach(server)
        connection.start_stream("START_REPLICATION")
        data = connection.pending
        assert begin.startswith(data)
        assert not connection.socket.getblocking()
        assert connection.parameters["a"] == "b"
        connection.send(messages.copy_data(b"r"))
        connection.end_stream()
        connection.close()


def test_command_that_does_not_stream_is_no_start() -> None:
    """And one that streams is no query."""

    def answers(peer: Peer) -> None:
        peer.log_in()
        peer.read_message()
        peer.send(answer(("a",)))

    def streams(peer: Peer) -> None:
        peer.log_in()
        peer.read_message()
        peer.send(messages.frontend(messages.Tag.COPY_BOTH.value, bytes(3)))

    with play(answers, streams) as server:
        with reach(server) as connection, pytest.raises(SequenceError, match="without starting"):
            connection.start_stream("SELECT")
        with reach(server) as connection, pytest.raises(SequenceError, match="started a stream"):
            connection.query("START_REPLICATION")


def test_stream_errors_are_judged() -> None:
    """With the body of the error, or without one."""

    def script(peer: Peer) -> None:
        peer.log_in()

    with play(script) as server, reach(server) as connection:
        refused = connection.stream_error(b'C22023\0Moption "a" = "b" is unknown\0\0')
        assert isinstance(refused, SourceRefusedError)
        ended = connection.stream_error(None)
        assert type(ended) is SourceError
        assert isinstance(connection.stream_error(b"\xff"), WireError)


def test_version_is_asked_for_once_and_not_on_a_stream() -> None:
    """SQL on a replication connection can spoil the start of the stream."""

    def sql(peer: Peer) -> None:
        peer.log_in()
        assert peer.read_message() == (b"Q", b"SELECT pg_catalog.version()\0")
        peer.send(answer(("version",), ("(openGauss 5.0.1 build 33b035fd) compiled at x",)))

    def stream(peer: Peer) -> None:
        peer.log_in()

    with play(sql, stream) as server:
        with reach(server, is_replication=False) as connection:
            assert connection.profile.name == "openGauss 5.0.1"
            assert connection.profile.version == (5, 0, 1)
        with reach(server) as connection, pytest.raises(SequenceError, match="ordinary"):
            _ = connection.profile


LEAVES = {
    "before a word": b"",
    "inside of a message": b"R\0\0",
    "after the log-in": messages.frontend(messages.Tag.AUTHENTICATION.value, bytes(4)),
}


@pytest.mark.parametrize("name", LEAVES)
def test_server_that_leaves_may_come_back(name: str) -> None:
    """Whenever it does."""

    def script(peer: Peer) -> None:
        peer.read_startup()
        peer.send(LEAVES[name])

    with (
        play(script) as server,
        pytest.raises(SourceError, match="closed the connection") as caught,
    ):
        reach(server)
    assert caught.value.retryable


def test_silent_server_costs_no_more_than_the_timeout() -> None:
    """Of connecting, and of one answer."""

    def mute(peer: Peer) -> None:
        peer.read_startup()
        assert peer.sock.recv(1) == b""

    def deaf(peer: Peer) -> None:
        peer.log_in()
        peer.read_message()
        assert peer.sock.recv(1) == b""

    with play(mute, deaf) as server:
        with pytest.raises(SourceError, match="no answer in time"):
            reach(server, "connect_timeout=1")
        connection = reach(server)
        connection.timeout = 0.2
        with pytest.raises(SourceError, match="no answer in time"):
            connection.query("SELECT")


@pytest.mark.parametrize(
    "greeting", [b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 400 Bad\r\n\r\n", b"\x15\3"]
)
def test_other_servers_are_not_gaussdb(greeting: bytes) -> None:
    """The port is wrong, and the message says so."""

    def script(peer: Peer) -> None:
        peer.read_startup()
        peer.send(greeting)

    with play(script) as server, pytest.raises(SourceRefusedError, match="check host and port"):
        reach(server)


def test_damaged_answer_is_a_wire_error() -> None:
    """The connection is not used any more."""

    def script(peer: Peer) -> None:
        peer.log_in()
        peer.read_message()
        peer.send(messages.frontend(messages.Tag.ROW_DESCRIPTION.value, b"\0\5"))

    with play(script) as server:
        connection = reach(server)
        with pytest.raises(WireError):
            connection.query("SELECT")
        with pytest.raises(WireError):
            connection.query("SELECT")


def test_next_host_is_asked_when_one_is_away() -> None:
    """In the order of the list; a refusal ends the search."""

    def starting(peer: Peer) -> None:
        peer.read_startup()
        peer.send(error("57P03", "the database system is starting up"))

    def accept(peer: Peer) -> None:
        peer.log_in()

    who = "dbname=x user=y sslmode=disable"
    with play(starting, accept) as server:
        hosts = f"host=127.0.0.1,127.0.0.1,127.0.0.1 port=1,{server.port},{server.port}"
        connection = connect(address(f"{hosts} {who}"))
        assert str(connection.endpoint) == f"127.0.0.1:{server.port}"
        connection.close()

    def refuse(peer: Peer) -> None:
        peer.read_startup()
        peer.send(error("28P01", "Invalid username/password,login denied."))

    with play(refuse) as server:
        hosts = f"host=127.0.0.1,127.0.0.1 port={server.port},1"
        with pytest.raises(SourceRefusedError, match="lock the account"):
            connect(address(f"{hosts} {who}"))


def test_all_hosts_away_are_all_named() -> None:
    """And it is worth trying again."""
    with pytest.raises(SourceError, match=r"127\.0\.0\.1:1: .*127\.0\.0\.1:2: ") as caught:
        connect(address("host=127.0.0.1,127.0.0.1 port=1,2 dbname=x user=y sslmode=disable"))
    assert caught.value.retryable
    with pytest.raises(SourceError, match=r"'no\.such\.host\.invalid' is not known"):
        connect(address("host=no.such.host.invalid dbname=x user=y sslmode=disable"))


def test_unix_socket(tmp_path: Path) -> None:
    """Without TLS, whatever sslmode says."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / ".s.PGSQL.5432"))
    listener.listen()

    def script(peer: Peer) -> None:
        peer.log_in()

    server = ScriptedServer(script)
    server._listener.close()
    server._listener = listener
    with server:
        connect(SourceAddress(f"host={tmp_path} dbname=x user=y")).close()


def test_server_without_tls() -> None:
    """Only `prefer` goes on without, on the same connection; `allow` never asks first."""

    def no_tls(peer: Peer) -> None:
        assert peer.read(8) == messages.ssl_request()
        peer.send(b"N")

    def no_tls_but(peer: Peer) -> None:
        no_tls(peer)
        peer.log_in()

    def plain(peer: Peer) -> None:
        peer.log_in()

    with play(no_tls, no_tls_but, plain) as server:
        with pytest.raises(SourceRefusedError, match="turn ssl on"):
            connect(address(server.dsn("sslmode=require")))
        connect(address(server.dsn("sslmode=prefer"))).close()
        connect(address(server.dsn("sslmode=allow"))).close()


def test_allow_turns_to_tls_only_before_a_password_was_given() -> None:
    """Another try with a wrong password would bring the account nearer to its lock."""

    def refuse(peer: Peer) -> None:
        peer.read_startup()
        peer.send(error("28000", "no pg_hba.conf entry for host, SSL off"))

    def no_tls(peer: Peer) -> None:
        assert peer.read(8) == messages.ssl_request()
        peer.send(b"N")

    def wrong(peer: Peer) -> None:
        peer.read_startup()
        peer.send(messages.frontend(messages.Tag.AUTHENTICATION.value, struct.pack(">i", 3)))
        assert peer.read_message() == (b"p", PASSWORD.encode() + b"\0")
        peer.send(error("28P01", "Invalid username/password,login denied."))

    with play(refuse, no_tls, wrong) as server:
        dsn = server.dsn("sslmode=allow")
        with pytest.raises(SourceRefusedError, match="two lines"):
            connect(address(dsn))
        with pytest.raises(SourceRefusedError, match="lock the account") as caught:
            connect(address(dsn, PASSWORD))
    assert PASSWORD not in str(caught.value)


def test_a_refusal_in_place_of_tls() -> None:
    """It may pass, and is no word of the library's; what the server says there is nobody's."""
    said = error("53300", "SECRET: sorry, too many clients already")

    def at_once(peer: Peer) -> None:
        peer.read(8)
        peer.send(said)

    def in_the_handshake(peer: Peer) -> None:
        peer.read(8)
        peer.send(b"S")
        peer.sock.recv(5)
        peer.send(said)

    for script in (at_once, in_the_handshake):
        with play(script) as server, pytest.raises(SourceError, match="in plain text") as caught:
            connect(address(server.dsn("sslmode=require")))
        assert caught.value.retryable
        assert "too many connections" in str(caught.value)
        assert "SECRET" not in str(caught.value)
        assert "WRONG_VERSION" not in str(caught.value)


def test_bytes_before_tls_are_not_believed() -> None:
    """What stands in front of the handshake was put there by somebody else."""

    def script(peer: Peer) -> None:
        peer.read(8)
        peer.send(b"S" + messages.frontend(messages.Tag.AUTHENTICATION.value, bytes(4)))

    with play(script) as server, pytest.raises(SourceError, match="TLS failed"):
        connect(address(server.dsn("sslmode=require")))


# ---- the simulated GaussDB -----------------------------------------------------------------


@pytest.fixture
def gauss() -> Iterator[GaussServer]:
    """A simulated server without a catalogue."""
    with GaussServer(Store()) as server:
        yield server
        assert server.violations == []


def gauss_dsn(server: GaussServer, port: int | None = None, user: str = "replica") -> str:
    """Connection string of it."""
    where = f"host=127.0.0.1 port={port or server.port}"
    return f"{where} dbname={server.database} user={user} sslmode=disable"


@pytest.mark.parametrize("minors", [(0, 50, 51), (0, 50), (0,)], ids=str)
@pytest.mark.parametrize("stored", ["md5", "combined", "sha256", "sm3"])
@pytest.mark.parametrize("method", ["password", "md5", "sha256", "sm3"])
def test_every_log_in(
    gauss: GaussServer, method: str, stored: str, minors: tuple[int, ...]
) -> None:
    """Each method of pg_hba.conf with each stored form, in each protocol of the server."""
    gauss.behaviour.replication_hba = method
    gauss.behaviour.protocols = minors
    gauss.add_user(User("somebody", PASSWORD, stored, iterations=2048 if 51 in minors else 10_000))
    dsn = gauss_dsn(gauss, user="somebody")
    is_sm3_of_another = method == "sm3" and stored != "sm3"
    md5_needs_default = method == "md5" and stored == "sha256" and 51 in minors
    if is_sm3_of_another or md5_needs_default:
        with pytest.raises(SourceRefusedError, match="connecting: "):
            connect(address(dsn, PASSWORD))
        return
    with connect(address(dsn, PASSWORD)) as connection:
        assert connection.query("IDENTIFY_SYSTEM")[0][0] == str(gauss.system_identifier)
    with pytest.raises(SourceRefusedError) as caught:
        connect(address(dsn, "wrong-word"))
    assert "wrong-word" not in str(caught.value)


def test_thread_pool_wants_the_ha_port(gauss: GaussServer) -> None:
    """The error names the setting; the HA port lets us in."""
    gauss.behaviour.thread_pool = True
    with pytest.raises(SourceRefusedError, match=r"source\.ha-port"):
        connect(address(gauss_dsn(gauss), PASSWORD))
    connect(address(gauss_dsn(gauss, gauss.ha_port), PASSWORD)).close()


def test_missing_lines_of_pg_hba_are_explained(gauss: GaussServer) -> None:
    """One for replication, one for the database."""
    gauss.behaviour.replication_hba = "reject"
    with pytest.raises(SourceRefusedError, match="two lines"):
        connect(address(gauss_dsn(gauss), PASSWORD))
    connect(address(gauss_dsn(gauss), PASSWORD), is_replication=False).close()


def test_role_without_replication_is_refused(gauss: GaussServer) -> None:
    """The advice names the privilege."""
    gauss.add_user(User("plain", PASSWORD, can_replicate=False))
    with pytest.raises(SourceRefusedError, match="REPLICATION"):
        connect(address(gauss_dsn(gauss, user="plain"), PASSWORD))


def test_simulated_server_with_tls(tmp_path: Path) -> None:
    """verify-full by default, over the whole conversation."""
    authority = make_certificates(tmp_path)
    with GaussServer(Store(), certificates=tmp_path, behaviour=Behaviour()) as server:
        dsn = gauss_dsn(server).replace("sslmode=disable", f"sslrootcert={authority}")
        with connect(SourceAddress(dsn, PASSWORD)) as connection:
            assert connection.is_encrypted
            assert len(connection.query("IDENTIFY_SYSTEM")) == 1


# ---- a real PostgreSQL: what both have in common -------------------------------------------


@pytest.mark.integration
@pytest.mark.parametrize("is_replication", [True, False])
def test_real_session(postgres: Postgres, is_replication: bool) -> None:
    """Every major answers to 3.51 with what it can do, and is understood."""
    dsn = postgres.dsn() + " sslmode=disable"
    with connect(address(dsn), is_replication=is_replication) as connection:
        assert connection.parameters["server_encoding"] == "UTF8"
        rows = connection.query_table("SELECT 1 AS a, NULL AS b, '' AS c, 'é' AS d")
        assert rows == [{"a": "1", "b": None, "c": "", "d": "é"}]
        assert connection.query("SELECT repeat('x', 300000)") == [("x" * 300_000,)]
        assert len(connection.query("SELECT generate_series(1, 20000)")) == 20_000
        assert connection.query("") == []
        if is_replication:
            assert len(connection.query("IDENTIFY_SYSTEM")[0]) == 4


@pytest.mark.integration
def test_real_errors_carry_their_code(postgres_15: Postgres) -> None:
    """While connecting and afterwards."""
    dsn = postgres_15.dsn() + " sslmode=disable"
    with connect(address(dsn), is_replication=False) as connection:
        with pytest.raises(SourceRefusedError) as caught:
            connection.query("SELECT 1/0")
        assert caught.value.sqlstate == "22012"
        assert connection.query("SELECT 1") == [("1",)]
    with pytest.raises(SourceRefusedError) as missing:
        connect(address(postgres_15.dsn("nowhere") + " sslmode=disable"))
    assert missing.value.sqlstate == "3D000"


@pytest.mark.integration
def test_real_log_in(own_server: Postgres) -> None:
    """Methods password and md5 let us in with the right word; SCRAM says that this is PostgreSQL."""
    with own_server.connect() as session:
        session.execute("SET password_encryption = 'md5'")
        session.execute("CREATE ROLE guarded LOGIN REPLICATION PASSWORD 'secret-word'")
        session.execute("SET password_encryption = 'scram-sha-256'")
        session.execute("CREATE ROLE scrammed LOGIN REPLICATION PASSWORD 'secret-word'")
    hba = own_server.data / "pg_hba.conf"
    own = hba.read_text()
    for method in ("password", "md5"):
        hba.write_text(f"host all guarded 127.0.0.1/32 {method}\n{own}")
        own_server.execute("SELECT pg_reload_conf()")
        dsn = own_server.dsn(user="guarded") + " sslmode=disable"
        with connect(address(dsn, "secret-word")) as connection:
            assert connection.query("SELECT current_user") == [("guarded",)]
        with pytest.raises(SourceRefusedError) as wrong:
            connect(address(dsn, "wrong-word"))
        assert wrong.value.sqlstate == "28P01"
        assert "wrong-word" not in str(wrong.value)
        with pytest.raises(SourceRefusedError, match="password-file"):
            connect(address(dsn))
    hba.write_text(f"host all scrammed 127.0.0.1/32 scram-sha-256\n{own}")
    own_server.execute("SELECT pg_reload_conf()")
    with pytest.raises(SourceRefusedError, match=r"source\.kind: postgresql"):
        connect(address(own_server.dsn(user="scrammed") + " sslmode=disable", "secret-word"))


@pytest.mark.integration
def test_real_tls(own_server: Postgres, tmp_path: Path) -> None:
    """Each sslmode against a server with a certificate for 127.0.0.1 and localhost."""
    authority = own_server.use_tls()
    other = make_certificates(tmp_path)
    base = own_server.dsn()
    good = f"{base} sslrootcert={authority}"
    with connect(SourceAddress(good)) as connection:
        assert connection.is_encrypted
        assert connection.query("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()") == [
            ("t",)
        ]
    for mode in ("prefer", "require", "verify-ca"):
        with connect(address(f"{good} sslmode={mode}")) as connection:
            assert connection.is_encrypted
    for mode in ("disable", "allow"):
        with connect(address(f"{base} sslmode={mode}")) as connection:
            assert not connection.is_encrypted

    with pytest.raises(SourceRefusedError, match="sslrootcert"):
        connect(SourceAddress(f"{base} sslrootcert={other}"))
    wrong_name = good.replace("host=127.0.0.1", "host=db.example hostaddr=127.0.0.1")
    with pytest.raises(SourceRefusedError, match="for another host"):
        connect(SourceAddress(wrong_name))
    connect(address(f"{wrong_name} sslmode=verify-ca")).close()


@pytest.mark.integration
def test_real_server_may_insist_on_tls(own_server: Postgres) -> None:
    """Allow turns to TLS where it must, prefer turns away from it."""
    own_server.use_tls()
    hba = own_server.data / "pg_hba.conf"
    for rule, mode, is_encrypted in (("hostssl", "allow", True), ("hostnossl", "prefer", False)):
        hba.write_text(f"local all all trust\n{rule} all all 127.0.0.1/32 trust\n"
                       f"{rule} replication all 127.0.0.1/32 trust\n")  # fmt: skip
        own_server.stop()
        own_server.start()
        with connect(address(f"{own_server.dsn()} sslmode={mode}")) as connection:
            assert connection.is_encrypted is is_encrypted


def openssl(directory: Path, *arguments: str) -> None:
    """Run a command of OpenSSL's beside the certificates."""
    subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)


@pytest.mark.integration
def test_real_server_may_ask_for_our_certificate(own_server: Postgres, tmp_path: Path) -> None:
    """With sslcert and sslkey we are who the certificate says."""
    authority = own_server.use_tls()
    key, certificate = tmp_path / "own.key", tmp_path / "own.pem"
    openssl(tmp_path, "req", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", "own.csr",
            "-subj", "/CN=certified")  # fmt: skip
    openssl(own_server.data, "x509", "-req", "-in", str(tmp_path / "own.csr"), "-CA", "authority.pem",
            "-CAkey", "authority.key", "-CAcreateserial", "-days", "7", "-out", str(certificate))  # fmt: skip
    key.chmod(0o600)
    own_server.execute("CREATE ROLE certified LOGIN REPLICATION")
    own_server.execute("ALTER SYSTEM SET ssl_ca_file = 'authority.pem'")
    hba = own_server.data / "pg_hba.conf"
    hba.write_text(f"hostssl all certified 127.0.0.1/32 cert\n{hba.read_text()}")
    own_server.execute("SELECT pg_reload_conf()")
    dsn = f"{own_server.dsn(user='certified')} sslrootcert={authority}"
    with connect(SourceAddress(f"{dsn} sslcert={certificate} sslkey={key}")) as connection:
        assert connection.query("SELECT current_user") == [("certified",)]
    with pytest.raises(SourceRefusedError, match="certificate"):
        connect(SourceAddress(dsn))


def test_revoked_certificate_is_refused(tmp_path: Path) -> None:
    """The server's own, by the list of sslcrl."""
    authority = make_certificates(tmp_path)
    (tmp_path / "index.txt").touch()
    (tmp_path / "ca.cnf").write_text(
        "[ca]\ndefault_ca=own\n[own]\ndatabase=index.txt\ndefault_md=sha256\n"
        "default_crl_days=7\ncertificate=authority.pem\nprivate_key=authority.key\n"
    )
    with GaussServer(Store(), certificates=tmp_path) as server:
        base = gauss_dsn(server).replace("sslmode=disable", f"sslrootcert={authority}")
        dsn = f"{base} sslcrl={tmp_path / 'revoked.pem'}"
        openssl(tmp_path, "ca", "-config", "ca.cnf", "-gencrl", "-out", "revoked.pem")
        connect(SourceAddress(dsn, PASSWORD)).close()
        openssl(tmp_path, "ca", "-config", "ca.cnf", "-revoke", "server.pem")
        openssl(tmp_path, "ca", "-config", "ca.cnf", "-gencrl", "-out", "revoked.pem")
        with pytest.raises(SourceRefusedError, match="certificate revoked"):
            connect(SourceAddress(dsn, PASSWORD))
