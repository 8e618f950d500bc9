"""A server that does not let the daemon in for a while: passwords, certificates, rules, limits."""

import contextlib
import dataclasses
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from kit import oracle
from kit.daemon import Daemon, wait_until
from kit.gaussdaemon import GaussDatabase, lands
from kit.gaussserver import GaussServer
from kit.gaussworkload import Workload
from kit.postgres import Database, Postgres, make_certificates

from gaussdecode.errors import EX_CONFIG

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]
_PASSWORDS = ("the first secret", "the second secret")
_ROLE = "follower"


@dataclasses.dataclass(frozen=True)
class Place:
    """A server that asks for a password over TLS, and what the daemon knows of it.

    Attributes:
        server: the server.
        database: with a slot and a table.
        password: file of the password.
        authority: certificate that the daemon trusts.
    """

    server: Postgres
    database: Database
    password: Path
    authority: Path

    def as_admin(self, *statements: str) -> None:
        """Run statements in another database."""
        for statement in statements:
            self.server.execute(statement)

    def set_password(self, password: str) -> None:
        """Change it on the server."""
        self.as_admin(f"ALTER ROLE {_ROLE} PASSWORD '{password}'")

    def write_password(self, password: str) -> None:
        """Change it in the file."""
        self.password.write_text(f"{password}\n" if password else "")

    def change_rules(self, old: str, new: str) -> None:
        """Change pg_hba.conf."""
        hba = self.server.data / "pg_hba.conf"
        hba.write_text(hba.read_text().replace(old, new))
        self.as_admin("SELECT pg_reload_conf()")

    def rename_database(self) -> None:
        """Give it another name, which needs that nobody uses it."""
        self.as_admin("ALTER DATABASE entered ALLOW_CONNECTIONS false")

        def is_renamed() -> bool:
            self.end_connections()
            try:
                self.as_admin("ALTER DATABASE entered RENAME TO away")
            except psycopg.errors.ObjectInUse:
                return False
            return True

        wait_until(is_renamed, "nobody in the database")

    def end_connections(self) -> None:
        """End those of the daemon, so that it has to log in."""
        self.as_admin(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{_ROLE}'"
        )


@pytest.fixture
def place(own_server: Postgres, tmp_path: Path) -> Iterator[Place]:
    """A server of this test alone."""
    authority = tmp_path / "authority.pem"
    shutil.copy(own_server.use_tls(), authority)
    own_server.use_password(_ROLE, _PASSWORDS[0])
    database = Database(own_server, "entered")
    database.execute("CREATE TABLE public.t (id int4 PRIMARY KEY)")
    database.create_slot()
    password = tmp_path / "password"
    password.touch(0o600)
    found = Place(own_server, database, password, authority)
    found.write_password(_PASSWORDS[0])
    yield found
    with contextlib.suppress(Exception):
        found.as_admin("ALTER DATABASE entered ALLOW_CONNECTIONS true")


@pytest.fixture
def daemon(place: Place, make_daemon: MakeDaemon) -> Daemon:
    """One that trusts the server's authority and has a password file."""
    dsn = (
        f"host=127.0.0.1 port={place.server.port} dbname=entered user={_ROLE} "
        f"sslmode=verify-full sslrootcert={place.authority}"
    )
    source = {"allow-insecure": False, "password-file": str(place.password)}
    made: Daemon = make_daemon(
        place.database, dsn=dsn, config={"source": source, "guard": {"interval": "1s"}}
    )
    return made


def _wait_for_reason(daemon: Daemon, reason: str) -> None:
    """Wait until the status names why nothing is streamed."""

    def is_named() -> bool:
        status = daemon.status() or {}
        return reason in str(status.get("detail"))

    daemon.wait_while_running(is_named, f"{reason!r} in the reason")


def _new_certificate(place: Place) -> Path:
    """Give the server another authority; gives its certificate."""
    authority = make_certificates(place.server.data)
    place.as_admin("SELECT pg_reload_conf()")
    return authority


def _cut(file: Path) -> None:
    """Leave the first half of it, as a copy does that has not ended."""
    content = file.read_bytes()
    file.with_suffix(".whole").write_bytes(content)
    file.write_bytes(content[: len(content) // 2])


def _put_back(file: Path) -> None:
    """Undo `_cut`."""
    file.write_bytes(file.with_suffix(".whole").read_bytes())


CAUSES: dict[str, tuple[Callable[[Place], object], Callable[[Place], object], str]] = {
    "password, then file": (
        lambda place: place.set_password(_PASSWORDS[1]),
        lambda place: place.write_password(_PASSWORDS[1]),
        "password",
    ),
    "file, then password": (
        lambda place: place.write_password(_PASSWORDS[1]),
        lambda place: place.set_password(_PASSWORDS[1]),
        "password",
    ),
    "file that is empty for a moment": (
        lambda place: place.write_password(""),
        lambda place: place.write_password(_PASSWORDS[0]),
        "password",
    ),
    "file that is away": (
        lambda place: place.password.rename(place.password.with_suffix(".away")),
        lambda place: place.password.with_suffix(".away").rename(place.password),
        "password",
    ),
    "authority that is half written": (
        lambda place: _cut(place.authority),
        lambda place: _put_back(place.authority),
        "authority.pem",
    ),
    "rule": (
        lambda place: place.change_rules(f"host all {_ROLE}", f"#host all {_ROLE}"),
        lambda place: place.change_rules(f"#host all {_ROLE}", f"host all {_ROLE}"),
        "",
    ),
    "database that takes no connections": (
        lambda place: place.as_admin("ALTER DATABASE entered ALLOW_CONNECTIONS false"),
        lambda place: place.as_admin("ALTER DATABASE entered ALLOW_CONNECTIONS true"),
        "ALLOW_CONNECTIONS",
    ),
    "database with another name": (
        lambda place: place.rename_database(),
        lambda place: place.as_admin(
            "ALTER DATABASE away RENAME TO entered", "ALTER DATABASE entered ALLOW_CONNECTIONS true"
        ),
        "does not exist",
    ),
    "limit of the role": (
        lambda place: place.as_admin(f"ALTER ROLE {_ROLE} CONNECTION LIMIT 0"),
        lambda place: place.as_admin(f"ALTER ROLE {_ROLE} CONNECTION LIMIT -1"),
        "too many connections",
    ),
    "role that may not log in": (
        lambda place: place.as_admin(f"ALTER ROLE {_ROLE} NOLOGIN"),
        lambda place: place.as_admin(f"ALTER ROLE {_ROLE} LOGIN"),
        "not permitted to log in",
    ),
    "role without REPLICATION": (
        lambda place: place.as_admin(f"ALTER ROLE {_ROLE} NOREPLICATION"),
        lambda place: place.as_admin(f"ALTER ROLE {_ROLE} REPLICATION"),
        "REPLICATION",
    ),
    "server without TLS": (
        lambda place: place.as_admin("ALTER SYSTEM SET ssl = off", "SELECT pg_reload_conf()"),
        lambda place: place.as_admin("ALTER SYSTEM SET ssl = on", "SELECT pg_reload_conf()"),
        "TLS",
    ),
}


@pytest.mark.parametrize("name", CAUSES)
def test_a_refusal_that_passes(place: Place, daemon: Daemon, name: str) -> None:
    """It is waited for, with its reason in the status; what was committed meanwhile lands."""
    begin, end, reason = CAUSES[name]
    with daemon:
        daemon.wait_for_state("streaming")
        place.database.execute("INSERT INTO public.t VALUES (1)")
        daemon.catch_up()
        begin(place)
        place.end_connections()
        daemon.wait_for_state("retrying")
        _wait_for_reason(daemon, reason)
        if "database" not in name:
            place.database.execute("INSERT INTO public.t VALUES (2)")
        end(place)
        daemon.wait_for_state("streaming")
        place.database.execute("INSERT INTO public.t VALUES (3)")
        daemon.catch_up()
        assert daemon.stop() == 0
    for password in _PASSWORDS:
        assert password not in daemon.log.read_text()
    oracle.check(daemon.root, place.database)


def test_password_certificate_and_authority_are_rotated(place: Place, daemon: Daemon) -> None:
    """As docs/procedures.md says; the daemon is not restarted."""
    with daemon:
        daemon.wait_for_state("streaming")
        place.set_password(_PASSWORDS[1])
        place.write_password(_PASSWORDS[1])
        place.end_connections()
        place.database.execute("INSERT INTO public.t VALUES (1)")
        daemon.catch_up()
        before = place.authority.read_text()
        new = _new_certificate(place).read_text()
        place.end_connections()
        daemon.wait_for_state("retrying")
        place.authority.write_text(before + new)
        daemon.wait_for_state("streaming")
        place.database.execute("INSERT INTO public.t VALUES (2)")
        daemon.catch_up()
        assert daemon.stop() == 0
    oracle.check(daemon.root, place.database)


def test_a_start_of_a_landing_with_rows_waits(place: Place, daemon: Daemon) -> None:
    """A machine that comes back while files and password are changed is no reason to stay down."""
    away = [(file, file.with_suffix(".away")) for file in (place.authority, place.password)]
    with daemon:
        daemon.wait_for_state("streaming")
        place.database.execute("INSERT INTO public.t VALUES (1)")
        daemon.catch_up()
        assert daemon.stop() == 0
    place.set_password(_PASSWORDS[1])
    for file, other in away:
        file.rename(other)
    with daemon:
        for file, other in reversed(away):
            _wait_for_reason(daemon, file.name)
            other.rename(file)
        _wait_for_reason(daemon, "password authentication failed")
        place.write_password(_PASSWORDS[1])
        daemon.wait_for_state("streaming")
        assert daemon.stop() == 0


def test_a_first_start_with_a_wrong_password_ends(place: Place, daemon: Daemon) -> None:
    """It is a mistake in the configuration: status 78, at once."""
    place.write_password(_PASSWORDS[1])
    assert daemon.start().wait() == EX_CONFIG
    assert "password" in daemon.log_tail()


def test_a_stop_ends_the_wait(place: Place, daemon: Daemon) -> None:
    """Also a long one."""
    with daemon:
        daemon.wait_for_state("streaming")
        place.set_password(_PASSWORDS[1])
        place.end_connections()
        daemon.wait_for_state("retrying")
        wait_until(lambda: '"session_retrying"' in daemon.log.read_text(), "a word in the log")
        assert daemon.stop() == 0


@pytest.mark.parametrize("decoders", [1, 2])
def test_a_wrong_password_locks_no_account_of_gaussdb(
    make_gauss: Callable[..., GaussServer], tmp_path: Path, decoders: int
) -> None:
    """Nobody tries it again until the file has another one, the guard neither."""
    server = make_gauss()
    workload, database = Workload(server.store, 3, large=False), GaussDatabase(server)
    daemon = lands(database, tmp_path / "daemon", parallel_decode_num=decoders)
    daemon.write_config(guard={"interval": "1s"})
    user, secret = server.users["replica"], daemon.config_path.with_suffix(".password")
    with daemon:
        workload.run(5)
        daemon.catch_up()
        server.add_user(dataclasses.replace(user, password="Another@123"))
        server.reset_connections()
        daemon.wait_for_state("retrying")
        wait_until(lambda: server.wrong_passwords > 0, "a refusal")
        time.sleep(8)  # far longer than its other waits
        assert server.wrong_passwords <= 5, server.wrong_passwords
        workload.run(5)
        secret.write_text("Another@123\n")
        daemon.catch_up()
        assert daemon.stop() == 0
