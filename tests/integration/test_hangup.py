"""SIGHUP: no reload under systemd; the end, in order, where the terminal has gone."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest
from kit.daemon import Daemon, wait_until
from kit.postgres import Database

from gaussdecode.errors import EX_OK

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]


def test_a_hangup_is_no_reload(database_15: Database, make_daemon: MakeDaemon) -> None:
    """Without a terminal it is refused in the log, and the stream goes on."""
    database_15.execute("CREATE TABLE public.t (id int4 PRIMARY KEY)")
    database_15.create_slot()
    daemon = make_daemon(database_15).start()
    daemon.wait_for_state("streaming")
    os.kill(daemon.pid, signal.SIGHUP)
    wait_until(lambda: '"reload_refused"' in daemon.log.read_text(), "it is refused")
    database_15.execute("INSERT INTO public.t VALUES (1)")
    daemon.catch_up()
    assert daemon.stop() == EX_OK


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
