"""What hangs is ended and started again, by the watchdog or by the daemon itself.

The supervisor of the kit listens on a real socket, as systemd does, and hears the main
process only.
"""

import dataclasses
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from kit import oracle
from kit.daemon import Daemon, is_alive, wait_until
from kit.postgres import Database
from kit.systemd import Supervised, Unit
from kit.workload import prepare

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]

# As long as the tests can wait; the real ones are a minute and two.
PATIENT = dataclasses.replace(Unit.read(), restart_seconds=0.1)
HURRIED = dataclasses.replace(PATIENT, watchdog_seconds=3.0)
STUCK_SECONDS = 10.0  # a start on a busy machine is done within it


def land_the_rest(supervised: Supervised, database: Database) -> None:
    """What was committed while nothing moved lands, and the end is in order."""
    wait_until(lambda: bool(supervised.daemon.status()), "the next start")
    supervised.daemon.wait_for_state("streaming")
    supervised.daemon.catch_up()
    assert supervised.is_ready
    assert supervised.stop() == 0
    oracle.check(supervised.daemon.root, database)


def test_main_that_hangs_is_killed_by_the_watchdog(
    database_15: Database, make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    """A main process that stands still sends nothing more, and is started again."""
    workload = prepare(database_15, 40)
    daemon = make_daemon(database_15)
    with Supervised(daemon, tmp_path, HURRIED) as supervised:
        supervised.unit = PATIENT  # on a busy machine a ping may be late
        daemon.wait_for_state("streaming")
        wait_until(lambda: supervised.pings >= 2, "the watchdog is fed")
        assert supervised.ends == []
        children = list(daemon.children().values())
        os.kill(daemon.pid, signal.SIGSTOP)
        supervised.unit = HURRIED
        workload.run(30)
        wait_until(lambda: bool(supervised.ends), "the watchdog has had enough")
        (end,) = supervised.ends
        supervised.unit = PATIENT
        assert (end.status, end.is_watchdog) == (-signal.SIGABRT, True)
        wait_until(lambda: not any(map(is_alive, children)), "the children die with it")
        land_the_rest(supervised, database_15)


@pytest.mark.parametrize("victim", ["reader", "worker 1"])
def test_stage_that_hangs_ends_the_daemon(
    database_15: Database, make_daemon: MakeDaemon, tmp_path: Path, victim: str
) -> None:
    """A process that stands still among others that run is named, and all are started again."""
    hurry = tmp_path / "hurry"
    hurry.mkdir()
    (hurry / "sitecustomize.py").write_text(
        f"import gaussdecode.daemon.session as session\nsession.STUCK_SECONDS = {STUCK_SECONDS}\n"
    )
    workload = prepare(database_15, 41)
    daemon = make_daemon(database_15, environment={"PYTHONPATH": str(hurry)})
    with Supervised(daemon, tmp_path, PATIENT) as supervised:
        daemon.wait_for_state("streaming")
        os.kill(daemon.children()[victim], signal.SIGSTOP)
        (hurry / "sitecustomize.py").unlink()  # the next start has its own patience
        workload.run(30)
        wait_until(lambda: bool(supervised.ends), "the daemon has had enough")
        (end,) = supervised.ends
        assert (end.status, end.is_watchdog) == (os.EX_SOFTWARE, False)
        name = victim.replace("worker", "decoder")
        assert f"{name} has not moved for" in daemon.log.read_text()
        land_the_rest(supervised, database_15)


def test_server_that_does_not_answer_before_the_stream(
    database_15: Database, make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    """What is asked first never comes back: the connection is given up, and made again."""
    (tmp_path / "sitecustomize.py").write_text(
        f"import gaussdecode.daemon.session as session\nsession.STUCK_SECONDS = {STUCK_SECONDS}\n"
    )
    workload = prepare(database_15, 43)
    daemon = make_daemon(database_15, environment={"PYTHONPATH": str(tmp_path)})
    daemon.begin()
    with database_15.connect() as session:
        session.execute("BEGIN; LOCK TABLE pg_catalog.pg_publication")
        daemon.start()
        daemon.wait_while_running(
            lambda: "the source did not answer for" in daemon.log.read_text(), "it is noticed"
        )
        session.execute("ROLLBACK")
    daemon.wait_for_state("streaming")
    workload.run(30)
    daemon.catch_up()
    assert daemon.stop() == 0
    oracle.check(daemon.root, database_15)
