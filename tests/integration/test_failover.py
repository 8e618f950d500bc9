"""The server is replaced by its standby: the daemon goes on where both agree, else stops."""

import shutil
from collections.abc import Callable, Iterator

import pytest
from kit import landing, oracle
from kit.daemon import Daemon, wait_until
from kit.postgres import Database, Postgres

from gaussdecode.cli import main
from gaussdecode.errors import EX_CONFIG, EX_OK
from gaussdecode.model.lsn import Lsn

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]


class Standby(Postgres):
    """A standby of another server, made from a copy of its files, the slots included."""

    def __init__(self, primary: Postgres) -> None:
        super().__init__(primary.major, {"fsync": "on"})
        shutil.rmtree(self.data)
        shutil.copytree(primary.data, self.data)
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        (self.data / "standby.signal").touch()
        with (self.data / "postgresql.auto.conf").open("a") as settings:
            settings.write(f"primary_conninfo = '{primary.dsn()}'\n")
        if self._user is not None:
            for path in (self.data, *self.data.rglob("*")):
                shutil.chown(path, self._user.pw_uid, self._user.pw_gid)

    def wait_for(self, primary: Postgres) -> None:
        """Wait until it has replayed all that the primary wrote."""
        ((end,),) = primary.execute("SELECT pg_current_wal_lsn()::text")
        query = f"SELECT pg_last_wal_replay_lsn() >= '{end}'::pg_lsn"
        wait_until(lambda: self.execute(query) == [(True,)], f"the standby is at {end}")

    def promote(self) -> None:
        """Make it a server of its own, with ``pg_ctl promote``."""
        self._run_as_user("pg_ctl", "promote", "--wait", "-D", str(self.data))


@pytest.fixture
def pair(own_server: Postgres) -> Iterator[tuple[Database, Standby]]:
    """A database with a slot, and a running standby of its server that knows the slot."""
    database = Database(own_server, "failover")
    database.execute("CREATE TABLE public.t (id int4 PRIMARY KEY)")
    database.create_slot()
    own_server.stop()
    standby = Standby(own_server)
    own_server.start()
    with standby:
        yield database, standby


def _land(database: Database, daemon: Daemon, first: int, last: int) -> None:
    database.execute(f"INSERT INTO public.t SELECT generate_series({first}, {last})")
    daemon.catch_up()


def _switch_to(standby: Standby, database: Database, daemon: Daemon) -> None:
    """Promote the standby, and point the daemon there as an operator would."""
    standby.promote()
    database.server = standby
    daemon.write_config(source={"dsn": f"{standby.dsn(database.name)} sslmode=disable"})


def test_promoted_standby_is_followed(
    pair: tuple[Database, Standby], make_daemon: MakeDaemon
) -> None:
    """A standby that had everything goes on under its new timeline, without loss or double."""
    database, standby = pair
    primary = database.server
    daemon = make_daemon(database).start()
    _land(database, daemon, 1, 100)
    assert daemon.stop() == 0
    database.execute("INSERT INTO public.t SELECT generate_series(101, 150)")
    standby.wait_for(primary)
    primary.stop("immediate")
    _switch_to(standby, database, daemon)
    daemon.start()
    _land(database, daemon, 151, 200)
    assert daemon.stop() == 0
    landed = oracle.check(daemon.root, database)
    assert [change.new["id"] for change in landed.changes] == list(range(1, 201))
    (position,) = landed.entries[-1]["positions"].values()
    assert position["timeline"] == 2


def test_standby_without_the_slot_is_followed_behind_a_gap(
    pair: tuple[Database, Standby], make_daemon: MakeDaemon
) -> None:
    """Where the slot was not kept, an operator accepts the gap across the change of timeline."""
    database, standby = pair
    primary = database.server
    daemon = make_daemon(database).start()
    _land(database, daemon, 1, 100)
    assert daemon.stop() == 0
    begin = daemon.durable_lsn()
    standby.wait_for(primary)
    primary.stop("immediate")
    _switch_to(standby, database, daemon)
    database.execute(f"SELECT pg_drop_replication_slot('{database.slot}')")
    database.execute("INSERT INTO public.t SELECT generate_series(101, 110)")
    assert daemon.start().wait() == EX_CONFIG
    accept = ("slot", "accept-gap", str(daemon.config_path), "--from-lsn", str(Lsn(begin)))
    assert main(accept) == EX_OK
    daemon.start()
    _land(database, daemon, 111, 120)
    assert daemon.stop() == 0
    landed = landing.read(daemon.root)
    assert [change.new["id"] for change in landed.changes] == [*range(1, 101), *range(111, 121)]
    (position,) = landed.entries[-1]["positions"].values()
    assert (position["epoch"], position["timeline"]) == (2, 2)


def test_promoted_standby_that_lacks_what_landed_is_refused(
    pair: tuple[Database, Standby], make_daemon: MakeDaemon
) -> None:
    """What landed and the new primary never had cannot be taken back: status 78."""
    database, standby = pair
    primary = database.server
    standby.wait_for(primary)
    standby.stop()
    daemon = make_daemon(database).start()
    _land(database, daemon, 1, 100)
    assert daemon.stop() == 0
    before = landing.read_entries(daemon.root)
    primary.stop()
    standby.start()
    _switch_to(standby, database, daemon)
    # The new timeline grows beyond the position that the old one had.
    database.execute("INSERT INTO public.t SELECT generate_series(1000, 9999)")
    assert daemon.start().wait() == EX_CONFIG
    assert "changes were landed that the new primary never had" in daemon.log_tail()
    assert landing.read_entries(daemon.root) == before


def test_older_copy_is_refused(pair: tuple[Database, Standby], make_daemon: MakeDaemon) -> None:
    """Back at the old primary after a failover, the daemon does not follow its timeline."""
    database, standby = pair
    primary = database.server
    daemon = make_daemon(database)
    standby.wait_for(primary)
    _switch_to(standby, database, daemon)
    daemon.start()
    _land(database, daemon, 1, 10)
    assert daemon.stop() == 0
    daemon.write_config(source={"dsn": f"{primary.dsn(database.name)} sslmode=disable"})
    assert daemon.start().wait() == EX_CONFIG
    assert "older copy" in daemon.log_tail()
