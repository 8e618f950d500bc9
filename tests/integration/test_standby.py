"""A standby as the source: PostgreSQL decodes there from 16 on."""

import functools
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from kit import landing, oracle
from kit.daemon import Daemon
from kit.postgres import Database, Postgres
from kit.standby import Standby

from gaussdecode.errors import EX_CONFIG, EX_OK

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]
_ASKED = {"decoding": {"standby-connection": True}, "snapshot": {"mode": "initial"}}


@pytest.fixture(params=[16, 18])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[Database, Standby]]:
    """A database with a publication, and a standby that keeps what decoding needs."""
    with Postgres(request.param, {"fsync": "on"}) as primary:
        database = Database(primary, "shop")
        database.execute("CREATE TABLE public.t (id int4 PRIMARY KEY)")
        database.execute("INSERT INTO public.t SELECT generate_series(1, 50)")
        primary.execute("SELECT pg_create_physical_replication_slot('standby')")
        primary.stop()
        settings = {"primary_slot_name": "standby", "hot_standby_feedback": "on"}
        standby = Standby(primary, settings)
        primary.start()
        with standby:
            yield database, standby


def _command(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gaussdecode", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_standby_is_followed(pair: tuple[Database, Standby], make_daemon: MakeDaemon) -> None:
    """Slot, existing rows and changes come from the standby alone; a primary is refused."""
    database, standby = pair
    primary = database.server
    daemon = make_daemon(database, config=_ASKED)
    refused = _command("check", str(daemon.config_path))
    assert refused.returncode == EX_CONFIG
    assert "decoding.standby-connection: the server is a primary" in refused.stdout
    daemon.write_config(source={"dsn": f"{standby.dsn(database.name)} sslmode=disable"})
    created = subprocess.Popen(
        [sys.executable, "-m", "gaussdecode", "slot", "create", str(daemon.config_path)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert created.stderr is not None
    told = created.stderr.readline()
    assert "on the primary: SELECT pg_log_standby_snapshot();" in told
    primary.execute("SELECT pg_log_standby_snapshot()")
    assert created.wait(60) == EX_OK, created.stderr.read()
    created.stderr.close()
    assert primary.execute("SELECT 1 FROM pg_replication_slots WHERE slot_type = 'logical'") == []
    checked = _command("check", str(daemon.config_path))
    assert checked.returncode == EX_OK, checked.stdout
    assert "standby" not in checked.stdout.split("findings")[-1].split("\n\n")[0]

    for first in (51, 101):
        daemon.start()
        database.execute(f"INSERT INTO public.t SELECT generate_series({first}, {first + 49})")
        landed_all = functools.partial(_holds, primary, daemon, first + 49)
        daemon.wait_while_running(landed_all, "rows have landed")
        assert daemon.stop() == EX_OK
    landed = landing.read(daemon.root)
    oracle.check_log(landed.entries)
    oracle.check_sums(landed)
    oracle.check_tables(landed, database)


def _holds(primary: Postgres, daemon: Daemon, last: int) -> bool:
    """Whether all rows have landed; the primary logs what a view on a standby waits for."""
    primary.execute("SELECT pg_log_standby_snapshot()")
    found = {change.new["id"] for change in landing.read(daemon.root).changes if change.new}
    return found == set(range(1, last + 1))
