"""SIGHUP ends a daemon in order where its terminal has gone; elsewhere see test_control.py."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest
from kit.daemon import Daemon
from kit.postgres import Database

from gaussdecode.errors import EX_OK

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]


def test_a_terminal_that_goes_stops_the_daemon(
    database_15: Database, make_daemon: MakeDaemon
) -> None:
    """Started by hand it ends as with SIGTERM, and leaves the slot to the next."""
    database_15.create_slot()
    daemon = make_daemon(database_15)
    daemon.begin()
    terminal, shell_side = os.openpty()
    with daemon.log.open("ab") as log:
        daemon.process = subprocess.Popen(
            [sys.executable, "-m", "gaussdecode", "run", str(daemon.config_path)],
            stdin=shell_side, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    os.close(shell_side)
    try:
        daemon.wait_for_state("streaming")
        os.kill(daemon.pid, signal.SIGHUP)
        assert daemon.wait() == EX_OK
        assert '"daemon_stopped"' in daemon.log_tail()
    finally:
        os.close(terminal)
