"""Connection strings for our own client: what is read, and what is refused."""

import ssl
import subprocess
from pathlib import Path

import pytest
from kit.postgres import make_certificates

from gaussdecode.errors import ConfigError, LoginRefusedError
from gaussdecode.source.address import SourceAddress
from gaussdecode.source.gaussdb.target import (
    Target,
    TlsFiles,
    on_next_port,
    on_port,
    parse_target,
    tls_context,
)

WHO = "dbname=shop user=gaussdecode"


def target(dsn: str, password: str | None = None, *, insecure: bool = False) -> Target:
    """What a string means."""
    return parse_target(SourceAddress(f"{dsn} {WHO}", password, insecure))


def test_defaults_protect() -> None:
    """TLS with verification, keepalives and time-outs as for PostgreSQL."""
    made = target("host=db")
    assert made.tls == TlsFiles("verify-full")
    assert made.numbers == {
        "connect_timeout": 10,
        "keepalives": 1,
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        "tcp_user_timeout": 60_000,
    }
    assert (made.database, made.user, made.application_name) == (
        "shop",
        "gaussdecode",
        "gaussdecode",
    )
    assert [str(endpoint) for endpoint in made.endpoints] == ["db:5432"]


def test_string_overrules_defaults() -> None:
    """What it says is done."""
    made = target("host=db port=8000 connect_timeout=3 keepalives=0 application_name=mine")
    assert made.numbers["connect_timeout"] == 3
    assert made.numbers["keepalives"] == 0
    assert made.application_name == "mine"
    assert made.endpoints[0].port == 8000


@pytest.mark.parametrize("mode", ["disable", "allow", "prefer", "require", "verify-ca"])
def test_less_protection_needs_leave(mode: str) -> None:
    """The message names the setting."""
    with pytest.raises(ConfigError, match="allow-insecure"):
        target(f"host=db sslmode={mode}")
    assert target(f"host=db sslmode={mode}", insecure=True).tls.mode == mode


@pytest.mark.parametrize("host", ["/run/gauss", "@abstract", "/a,/b"])
def test_unix_sockets_are_secure(host: str) -> None:
    """Nothing leaves the machine."""
    made = target(f"host={host} sslmode=disable")
    assert all(endpoint.is_local for endpoint in made.endpoints)


def test_one_network_host_makes_it_a_network_connection() -> None:
    """The weakest decides."""
    for hosts in ("host=/run,db", "hostaddr=10.0.0.1 host=/run"):
        with pytest.raises(ConfigError, match="allow-insecure"):
            target(f"{hosts} sslmode=disable")


def test_several_hosts_have_ports_and_addresses() -> None:
    """One port for all, or one each; a number to connect to beside a name to verify."""
    assert [str(e) for e in target("host=a,b port=1,2").endpoints] == ["a:1", "b:2"]
    assert [str(e) for e in target("host=a,b port=8000").endpoints] == ["a:8000", "b:8000"]
    assert [str(e) for e in target("host=a,b port=,7").endpoints] == ["a:5432", "b:7"]
    both = target("host=a,b hostaddr=10.0.0.1,10.0.0.2").endpoints
    assert [(e.host, e.address) for e in both] == [("a", "10.0.0.1"), ("b", "10.0.0.2")]
    alone = target("hostaddr=10.0.0.1,10.0.0.2").endpoints
    assert [(e.host, e.address) for e in alone] == [("10.0.0.1",) * 2, ("10.0.0.2",) * 2]


def test_socket_paths() -> None:
    """By the port, in a directory or in the abstract name space."""
    assert target("host=/run port=7").endpoints[0].socket_path == "/run/.s.PGSQL.7"
    assert target("host=@x").endpoints[0].socket_path == "\0x/.s.PGSQL.5432"


@pytest.mark.parametrize(
    ("dsn", "what"),
    [
        ("", "names no host"),
        ("host=a, port=1", "names no host"),
        ("host=a,b port=1,2,3", "different numbers"),
        ("host=a,b hostaddr=1.1.1.1", "different numbers"),
        ("host=a port=x", "port is not a number"),
        ("host=a port=0", "port is not a number"),
        ("host=a port=65536", "port is not a number"),
        ("host=a connect_timeout=soon", "connect_timeout is not a number"),
        ("host=a sslmode=maybe", "sslmode must be one of"),
        ("host=a ssl_min_protocol_version=TLSv1", "ssl_min_protocol_version"),
        ("host=a passfile=/x", "passfile is not offered"),
        ("host=a channel_binding=require", "channel_binding other than disable or prefer"),
        ("host=a gssencmode=require", "gssencmode other than"),
        ("host=a target_session_attrs=read-write", "target_session_attrs other than any"),
        ("host=a options='-c x=1'", "options is not offered"),
        ("host=a sslrootcert=system sslmode=verify-ca", "needs sslmode=verify-full"),
    ],
)
def test_mistakes_are_named(dsn: str, what: str) -> None:
    """Nothing is ignored."""
    with pytest.raises(ConfigError, match=what):
        target(dsn, insecure=True)


@pytest.mark.parametrize("key", ["dbname", "user"])
def test_needed_keys(key: str) -> None:
    """There is no default that would be right."""
    dsn = "host=db " + " ".join(pair for pair in WHO.split() if not pair.startswith(key))
    with pytest.raises(ConfigError, match=f"names no {key}"):
        parse_target(SourceAddress(dsn))


def test_harmless_keys_pass() -> None:
    """They say what is done anyway."""
    target("host=db gssencmode=disable target_session_attrs=any")


def test_passwords_stay_hidden() -> None:
    """In the target, in errors, and wherever they came from."""
    made = target("host=db password=geheim sslpassword=schluessel")
    assert made.password == "geheim"
    assert made.secrets == ("geheim", "schluessel")
    assert "geheim" not in repr(made)
    assert "schluessel" not in repr(made)
    assert target("host=db password=geheim", "besser").password == "besser"
    with pytest.raises(ConfigError) as caught:
        target("host=db password=geheim nonsense")
    assert "geheim" not in str(caught.value)


def test_other_port_keeps_everything_else() -> None:
    """The HA port of the same servers."""
    address = SourceAddress(f"host=a,b port=1,2 {WHO}", "geheim", True)
    moved = on_port(address, 9)
    assert [str(e) for e in parse_target(moved).endpoints] == ["a:9", "b:9"]
    assert (moved.password, moved.is_insecure_allowed) == ("geheim", True)


def test_the_port_after_each() -> None:
    """Where a thread pool has replication; a port that is not named has one too."""
    for ports, expected in (("port=8000,9000", ["a:8001", "b:9001"]), ("", ["a:5433", "b:5433"])):
        moved = on_next_port(SourceAddress(f"host=a,b {ports} {WHO}", "geheim", True))
        assert [str(e) for e in parse_target(moved).endpoints] == expected
        assert moved.password == "geheim"


def test_naming_an_authority_has_it_asked() -> None:
    """As libpq does with sslmode=require."""
    made = target("host=db sslmode=require sslrootcert=/x", insecure=True)
    assert made.tls.mode == "verify-ca"


# ---- files ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, a certificate it signed, and its key."""
    directory = tmp_path_factory.mktemp("tls")
    make_certificates(directory)
    return directory


@pytest.mark.parametrize(
    ("mode", "verify", "checks_name"),
    [
        ("verify-full", ssl.CERT_REQUIRED, True),
        ("verify-ca", ssl.CERT_REQUIRED, False),
        ("require", ssl.CERT_NONE, False),
        ("prefer", ssl.CERT_NONE, False),
    ],
)
def test_mode_decides_what_is_proved(
    files: Path, mode: str, verify: ssl.VerifyMode, checks_name: bool
) -> None:
    """The certificate, and the name in it."""
    context = tls_context(TlsFiles(mode, root=str(files / "authority.pem")))
    assert (context.verify_mode, context.check_hostname) == (verify, checks_name)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_system_authorities_and_newest_version() -> None:
    """Both by name."""
    context = tls_context(TlsFiles(root="system", lowest="TLSv1.3"))
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_missing_authority_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where libpq's own place is empty."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for root in ("", str(tmp_path / "none.pem")):
        with pytest.raises(LoginRefusedError, match="sslrootcert="):
            tls_context(TlsFiles(root=root))


def test_authority_at_libpqs_place_is_found(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The home directory's .postgresql/root.crt."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".postgresql").mkdir()
    (tmp_path / ".postgresql/root.crt").write_bytes((files / "authority.pem").read_bytes())
    assert tls_context(TlsFiles()).cert_store_stats()["x509_ca"] == 1


def test_own_certificate_needs_a_private_key_file(files: Path, tmp_path: Path) -> None:
    """One that others can read is refused, and one that is none."""
    key = tmp_path / "own.key"
    key.write_bytes((files / "server.key").read_bytes())
    own = TlsFiles("require", certificate=str(files / "server.pem"), key=str(key))
    key.chmod(0o644)
    with pytest.raises(LoginRefusedError, match="chmod 0600"):
        tls_context(own)
    key.chmod(0o600)
    tls_context(own)
    key.write_text("nonsense")
    with pytest.raises(LoginRefusedError, match="not the file"):
        tls_context(own)
    with pytest.raises(LoginRefusedError, match="No such file"):
        tls_context(TlsFiles("require", certificate="/none.pem", key="/none.key"))
    with pytest.raises(ConfigError, match="without sslcert"):
        tls_context(TlsFiles("require", key=str(key)))


def test_encrypted_key_needs_its_password(files: Path, tmp_path: Path) -> None:
    """Nobody is asked at a terminal."""
    key = tmp_path / "secret.key"
    subprocess.run(
        ["openssl", "ec", "-in", files / "server.key", "-aes256", "-passout", "pass:geheim",
         "-out", key],
        check=True, capture_output=True,
    )  # fmt: skip
    key.chmod(0o600)
    certificate = str(files / "server.pem")
    tls_context(TlsFiles("require", certificate=certificate, key=str(key), key_password="geheim"))
    with pytest.raises(LoginRefusedError, match="not the file") as caught:
        tls_context(TlsFiles("require", certificate=certificate, key=str(key), key_password="no!"))
    assert "no!" not in str(caught.value)


def test_damaged_files_are_named(tmp_path: Path) -> None:
    """With the key of the connection string."""
    broken = tmp_path / "broken.pem"
    broken.write_text("nonsense")
    with pytest.raises(LoginRefusedError, match="sslrootcert"):
        tls_context(TlsFiles(root=str(broken)))
    with pytest.raises(LoginRefusedError, match="sslcrl"):
        tls_context(TlsFiles(root="system", revoked=str(broken)))
