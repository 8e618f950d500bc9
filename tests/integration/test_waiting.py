"""What a test says that waited in vain: where the daemon stands, and its server, of either kind."""

from collections.abc import Callable
from pathlib import Path

import pytest
from kit import daemon as waiting
from kit.daemon import Daemon
from kit.gaussdaemon import GaussDaemon, GaussDatabase
from kit.gaussserver import GaussServer
from kit.postgres import Database

pytestmark = pytest.mark.integration


def said_in_vain(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> str:
    """Wait for what never comes, for a moment."""
    daemon.wait_for_state("streaming")
    wait_until = waiting.wait_until
    monkeypatch.setattr(waiting, "wait_until", lambda met, what: wait_until(met, what, 0.1))
    with pytest.raises(AssertionError, match="in vain: the impossible") as caught:
        daemon.wait_while_running(lambda: False, "the impossible")
    return str(caught.value)


def test_of_postgresql(
    database_15: Database,
    make_daemon: Callable[..., Daemon],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The status, what pg_stat_replication shows, and the log."""
    database_15.create_slot()
    with make_daemon(database_15) as daemon:
        said = said_in_vain(daemon, monkeypatch)
    assert '"state": "streaming"' in said
    assert "('streaming', " in said
    assert "source_connected" in said


def test_of_gaussdb(
    make_gauss: Callable[..., GaussServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same, with the simulated slot."""
    with GaussDaemon(GaussDatabase(make_gauss()), tmp_path) as daemon:
        said = said_in_vain(daemon, monkeypatch)
    assert '"state": "streaming"' in said
    assert "confirmed_lsn" in said
    assert "source_connected" in said
