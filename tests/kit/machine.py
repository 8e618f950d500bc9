"""A machine of its own for the tests of the units: a real systemd, in namespaces.

The file system is a copy-on-write view of this one, so it has the same packages; the network is
shared, so a server of `kit.postgres` is reached from there. systemd is Debian's, the first
process of its namespace, and boots, reboots and ends as on any machine. The program is in
``/opt/gaussdecode``, where every account may read it, and on root's search path.

Needs root: a test that boots one is marked ``machine``.
"""

import contextlib
import ctypes
import itertools
import os
import shlex
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from kit.daemon import wait_until

SCRIPT: Final = Path(__file__).with_name("machine.sh")
_CHECKOUT: Final = Path(__file__).parents[2]
_SYSTEMD: Final = Path("/lib/systemd/systemd")
_NAMESPACES: Final = ("--mount", "--pid", "--uts", "--ipc", "--cgroup")
_PR_SET_PDEATHSIG: Final = 1
_NEEDS: Final = "a machine of its own needs systemd, util-linux and root"
_numbers = itertools.count(1)


class Done(NamedTuple):
    """How a command on the machine ended, and what it said."""

    status: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """All that it said."""
        return self.out + self.err


class Machine:
    """Booted by ``with``, and gone without a trace after it.

    Args:
        directory: does not exist; the machine's own files are below it, out of sight of all
            others.
        is_bare: whether nobody has installed the program yet.

    Attributes:
        name: of its control group.
    """

    def __init__(self, directory: Path, *, is_bare: bool = False) -> None:
        self._directory = directory
        self._is_bare = is_bare
        self.name = f"gaussdecode-machine-{os.getpid()}-{next(_numbers)}"
        self._log = directory.with_name(f"{directory.name}.log")
        self._outer: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Boot it."""
        assert _SYSTEMD.exists() and os.geteuid() == 0, _NEEDS  # noqa: PT018 - one reason
        command = ["unshare", "--mount", "--pid", "--kill-child=KILL", "--fork", "sh", str(SCRIPT)]
        program = (sys.base_prefix, sysconfig.get_path("purelib"), str(_CHECKOUT))
        command += [str(self._directory), self.name, *(() if self._is_bare else program)]
        self._directory.mkdir()
        with self._log.open("wb") as log:
            self._outer = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_parent(),  # noqa: PLW1509 - it makes one system call
            )
        try:
            self._wait_for_boot()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End every process of it; its files go with them."""
        assert self._outer is not None
        systemd = self._systemd()
        groups = [each for top in groups_of(self.name) for each in below(top)]
        with contextlib.suppress(ProcessLookupError):
            if systemd is not None:
                os.kill(systemd, signal.SIGKILL)
        self._outer.kill()
        self._outer.wait()
        for group in groups:
            wait_until(lambda group=group: is_removed(group), "the control group is empty")  # type: ignore[misc]

    @property
    def root(self) -> Path:
        """Its file system, as it is seen from here; not what it has mounted itself."""
        assert self._outer is not None
        return Path(f"/proc/{self._outer.pid}/root{self._directory}/root")

    def run(self, line: str, *, user: str = "root", stdin: str | None = None) -> Done:
        """Have a shell of a user's do something."""
        pid = self._systemd()
        assert pid is not None, self._said()
        join = ["nsenter", "--target", str(pid), *_NAMESPACES]
        done = subprocess.run(
            [*join, "setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups",
             "--reset-env", "bash", "-c", f"umask 022; cd; {line}"],
            input=stdin, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)

    def do(self, line: str, *, user: str = "root", stdin: str | None = None) -> str:
        """The same for what must succeed; gives what it printed."""
        done = self.run(line, user=user, stdin=stdin)
        assert done.status == 0, f"{user}: {line}: status {done.status}\n{done.text}"
        return done.out

    def write(self, path: str, text: str, *, mode: str = "0644", group: str = "root") -> None:
        """Lay down a file of root's."""
        self.do(f"install -m {mode} -g {group} /dev/stdin {shlex.quote(path)}", stdin=text)

    def reboot(self) -> None:
        """Reboot, and wait until it is up again."""
        before = self._systemd()
        self.run("systemctl reboot")
        wait_until(lambda: self._systemd() not in {None, before}, f"it reboots\n{self._said()}")
        self._wait_for_boot()

    def _wait_for_boot(self) -> None:
        def is_up() -> bool:
            assert self._outer is not None
            assert self._outer.poll() is None, f"{_NEEDS}\n{self._said()}"
            if self._systemd() is None:
                return False
            state = self.run("systemctl is-system-running").out.strip()
            assert state != "degraded", self.run("systemctl --failed; journalctl -p warning").out
            return state == "running"

        wait_until(is_up, "the machine boots")

    def _systemd(self) -> int | None:
        """Its first process, by its number here."""
        assert self._outer is not None
        pids = [self._outer.pid]
        for pid in pids:
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text() == "systemd\n":
                    return pid
                pids += _children(pid)
        return None

    def _said(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]


def _owns_a_group() -> bool:
    """Whether this process may make control groups below its own."""
    line = next(x for x in Path("/proc/self/cgroup").read_text().splitlines() if x[:3] == "0::")
    places = (Path(f"/sys/fs/cgroup{kind}/{line[4:]}") for kind in ("", "/unified"))
    return any(os.access(place, os.W_OK) for place in places if place.is_dir())


def groups_of(name: str) -> list[Path]:
    """Control groups of a machine: one, until it is removed."""
    return list(Path("/sys/fs/cgroup").glob(f"**/{name}"))


def _die_with_parent() -> Callable[[], object]:
    """What a child calls so that it is killed when the tests are, and the machine with it."""
    libc = ctypes.CDLL(None)
    return lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, task.read_text().split())
    return found


def below(group: Path) -> list[Path]:
    """A control group and those in it, from the leaves up."""
    return [*(each for child in group.iterdir() if child.is_dir() for each in below(child)), group]


def is_removed(group: Path) -> bool:
    """Remove a control group; gives whether it is gone."""
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
