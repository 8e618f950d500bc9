"""Ways to reach the server, from the configuration to what has landed."""

import ctypes
import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit import oracle
from kit.daemon import Daemon
from kit.install import PSYCOPG_C
from kit.postgres import Database, Postgres, make_certificates
from kit.tlsproxy import Sizes, TlsProxy

from gaussdecode.errors import EX_CONFIG
from gaussdecode.source.address import SourceAddress
from gaussdecode.source.postgresql.connection import connect

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]
_PASSWORD = "s3cret of the kit"
_STRICT = {"source": {"allow-insecure": False}}
_QUICK = {"landing": {"max-commit-interval": "100ms"}}


@pytest.fixture(scope="module")
def secure() -> Iterator[tuple[Postgres, Path]]:
    """A server with TLS and a role with a password, and the certificate of its authority."""
    with Postgres(15) as server:
        authority = server.use_tls()
        server.use_password("follower", _PASSWORD)
        hba = server.data / "pg_hba.conf"
        hba.write_text(hba.read_text().replace("host all follower", "hostssl all follower"))
        server.execute("SELECT pg_reload_conf()")
        yield server, authority


@pytest.fixture
def guarded(secure: tuple[Postgres, Path]) -> Iterator[Database]:
    """A database of that server with a slot and a table."""
    database = Database(secure[0], "guarded")
    database.execute("CREATE TABLE public.t (id int4 PRIMARY KEY, v text)")
    database.create_slot()
    yield database
    database.drop()


def _lands(daemon: Daemon) -> None:
    """Rows arrive, and neither log nor status shows the password."""
    database = daemon.database
    with daemon:
        daemon.wait_for_state("streaming")
        database.execute(
            "INSERT INTO public.t SELECT g, repeat('x', g % 999) FROM generate_series(1, 5000) g"
        )
        daemon.catch_up()
        assert _PASSWORD not in daemon.get("/status")[1].decode()
        assert daemon.stop() == 0
    assert _PASSWORD not in daemon.log.read_text()
    oracle.check(daemon.root, database)


def _password_file(directory: Path) -> Path:
    path = directory / "password"
    path.write_text(f"{_PASSWORD}\n")
    path.chmod(0o600)
    return path


def test_verified_tls_and_password(
    guarded: Database, secure: tuple[Postgres, Path], make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    """With sslmode=verify-full and a password file, and nothing less allowed."""
    server, authority = secure
    source = {**_STRICT["source"], "password-file": str(_password_file(tmp_path))}
    dsn = (
        f"host=localhost hostaddr=127.0.0.1 port={server.port} dbname=guarded user=follower "
        f"sslmode=verify-full sslrootcert={authority}"
    )
    _lands(make_daemon(guarded, dsn=dsn, config={"source": source}))


@pytest.mark.parametrize(
    "sizes",
    [
        lambda _: 16384,
        lambda rng: rng.randint(1, 16384),
        lambda rng: rng.randint(1, 40),
        lambda rng: rng.choice([1, 5, 16384]),
    ],
    ids=["whole", "any", "tiny", "uneven"],
)
def test_records_of_any_size(
    secure: tuple[Postgres, Path],
    make_daemon: MakeDaemon,
    tmp_path: Path,
    sizes: Sizes,
) -> None:
    """What TLS has read ahead is landed though nothing more comes, and the end of a stream is seen."""
    database = Database(secure[0], "records")
    database.execute("CREATE TABLE public.t (id int8 PRIMARY KEY, v text)")
    database.create_slot()
    with TlsProxy(secure[0].port, tmp_path, sizes) as proxy:
        dsn = f"host=127.0.0.1 port={proxy.port} dbname=records user=postgres sslmode=require"
        with make_daemon(database, dsn=dsn, config=_QUICK) as daemon:
            daemon.wait_for_state("streaming")
            for size in (0, 1, 300, 16_000, 16_384, 33_000, 700_000):
                database.execute(
                    "INSERT INTO public.t SELECT (SELECT count(*) FROM public.t) + g, "
                    f"repeat('x', {size}) || g FROM generate_series(1, 3) g"
                )
                daemon.catch_up()  # nothing more comes until this has landed
            database.execute(
                "INSERT INTO public.t SELECT g, repeat('y', g % 99) FROM generate_series(100, 4000) g"
            )
            daemon.catch_up()
            assert daemon.stop() == 0
        assert proxy.records > 100
    assert "tls_by_records" not in daemon.log.read_text()
    oracle.check(daemon.root, database)
    database.drop()


def test_wrong_authority(
    guarded: Database, secure: tuple[Postgres, Path], make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    """A server that the given authority does not vouch for is not read from: status 78."""
    dsn = (
        f"host=localhost port={secure[0].port} dbname=guarded user=postgres "
        f"sslmode=verify-full sslrootcert={make_certificates(tmp_path)}"
    )
    daemon = make_daemon(guarded, dsn=dsn, config=_STRICT)
    assert daemon.start().wait() == EX_CONFIG
    assert "sslrootcert must have the authority that signed it" in daemon.log_tail()


def test_wrong_password(
    guarded: Database, secure: tuple[Postgres, Path], make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    """It is refused for good, and neither password shows."""
    path = _password_file(tmp_path)
    path.write_text("not the pass word\n")
    dsn = (
        f"host=localhost port={secure[0].port} dbname=guarded user=follower "
        f"sslmode=verify-full sslrootcert={secure[1]}"
    )
    config = {"source": {**_STRICT["source"], "password-file": str(path)}}
    daemon = make_daemon(guarded, dsn=dsn, config=config)
    assert daemon.start().wait() == EX_CONFIG
    assert "password authentication failed" in daemon.log_tail()
    assert "not the pass word" not in daemon.log.read_text()


def test_settings_of_the_environment(
    guarded: Database, secure: tuple[Postgres, Path], make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    """What libpq reads from its environment and files reaches the reader's process."""
    passwords = tmp_path / "pgpass"
    passwords.write_text(f"*:*:guarded:follower:{_PASSWORD}\n")
    passwords.chmod(0o600)
    dsn = f"host=localhost port={secure[0].port} dbname=guarded user=follower sslmode=verify-full"
    environment = {"PGPASSFILE": str(passwords), "PGSSLROOTCERT": str(secure[1])}
    _lands(make_daemon(guarded, dsn=dsn, config=_STRICT, environment=environment))


def test_files_of_the_home(
    guarded: Database, secure: tuple[Postgres, Path], make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    """So do the files that libpq looks for in the user's home."""
    (tmp_path / ".pgpass").write_text(f"*:*:guarded:follower:{_PASSWORD}\n")
    (tmp_path / ".pgpass").chmod(0o600)
    (tmp_path / ".postgresql").mkdir()
    (tmp_path / ".postgresql" / "root.crt").write_text(secure[1].read_text())
    dsn = f"host=localhost port={secure[0].port} dbname=guarded user=follower"
    environment = {"HOME": str(tmp_path)}
    daemon = make_daemon(
        guarded, dsn=f"{dsn} sslmode=verify-full", config=_STRICT, environment=environment
    )
    _lands(daemon)


@pytest.mark.parametrize("is_allowed", [True, False])
def test_service(
    guarded: Database,
    secure: tuple[Postgres, Path],
    make_daemon: MakeDaemon,
    tmp_path: Path,
    is_allowed: bool,
) -> None:
    """A service file names the server; it cannot ask for less than the configuration allows."""
    services = tmp_path / "services"
    services.write_text(
        f"[shop]\nhost=localhost\nport={secure[0].port}\ndbname=guarded\nuser=postgres\n"
        f"sslmode=disable\nsslrootcert={secure[1]}\n"
    )
    environment = {"PGSERVICEFILE": str(services)}
    daemon = make_daemon(guarded, dsn="service=shop", environment=environment)
    daemon.write_config(source={"dsn": "service=shop", "allow-insecure": is_allowed})
    with daemon:
        daemon.wait_for_state("streaming")
        rows = guarded.execute("SELECT ssl FROM pg_stat_ssl JOIN pg_stat_replication USING (pid)")
        assert rows == [(not is_allowed,)]
        assert daemon.stop() == 0


def test_only_tls_reads_ahead(secure: tuple[Postgres, Path]) -> None:
    """And where nothing has come it holds nothing."""
    for mode, is_encrypted in (("disable", False), ("require", True)):
        dsn = f"{secure[0].dsn()} sslmode={mode}"
        with connect(SourceAddress(dsn, None, is_insecure_allowed=True)) as connection:
            ahead = connection.read_ahead()
            assert (ahead is not None) is is_encrypted
            assert ahead is None or not ahead.is_pending()
            assert connection.query("SELECT 1") == [("1",)]
            connection.libpq = dataclasses.replace(connection.libpq, library=ctypes.CDLL(None))
            assert connection.read_ahead() is None  # no such functions in it: as before


@pytest.mark.parametrize("implementation", ["python", "c"])
def test_implementations_of_psycopg(
    guarded: Database, make_daemon: MakeDaemon, implementation: str
) -> None:
    """The one that the environment asks for is the one that every process uses, and its TLS."""
    environment = {"PSYCOPG_IMPL": implementation}
    if implementation == "c":
        paths = [str(PSYCOPG_C), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
    daemon = make_daemon(guarded, dsn=f"{guarded.dsn} sslmode=require", environment=environment)
    with daemon:
        daemon.wait_for_state("streaming")
        reader = Path(f"/proc/{daemon.children()['reader']}/maps").read_text()
        assert ("psycopg_c/" in reader) == (implementation == "c")
        assert "psycopg_binary/" not in reader
        assert daemon.stop() == 0
    _lands(daemon)
    assert "tls_by_records" not in daemon.log.read_text()
