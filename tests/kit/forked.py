"""The command in a process of its own that begins with its modules imported.

A start by `exec` costs most of a second of CPU before its first line, and the tests start hundreds.
So a process of each test worker imports what the daemon does and then only forks. The daemon knows no
difference; that a new interpreter starts it too is shown by the tests that give it an environment, by
the units, the demo and the package.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from gaussdecode import cli

_CONTEXT: Final = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["gaussdecode.commands.run"])


def _begin(
    arguments: Sequence[str], environment: Mapping[str, str], directory: str, log: Path
) -> None:
    """Become the command: with these, and with both outputs in the log."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    opened = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(opened, 1)
    os.dup2(opened, 2)
    os.close(opened)
    sys.argv = ["gaussdecode", *arguments]
    sys.exit(cli.main())


class Forked:
    """A process, as `subprocess.Popen` is one.

    Attributes:
        pid: its process id.
    """

    def __init__(self, arguments: Sequence[str], log: Path) -> None:
        given = (list(arguments), dict(os.environ), os.getcwd(), log)
        self._process = _CONTEXT.Process(target=_begin, args=given, daemon=True)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """Its exit status if it has ended."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """Give its exit status if it has ended."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and give its exit status.

        Raises:
            subprocess.TimeoutExpired: it goes on.
        """
        self._process.join(timeout)
        status = self.poll()
        if status is None:
            raise subprocess.TimeoutExpired("gaussdecode", timeout or 0)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)
