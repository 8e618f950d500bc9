"""Children of the pipeline: what they inherit, what they say, how they end."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import gaussdecode
from gaussdecode.errors import ChildError, SourceError, from_record
from gaussdecode.ipc.process import (
    Child,
    Prepared,
    Reports,
    Waiting,
    descriptors,
    spawn_child,
)

Report = dict[str, Any]  # Any: JSON
Spawn = Callable[..., Child]

ROOT = str(Path(gaussdecode.__file__).parents[1])
BEGIN = "from gaussdecode.ipc.process import enter_child\nsettings, reports = enter_child()\n"


@pytest.fixture
def spawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Spawn]:
    """Give what runs a script as a child; children are ended after the test."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    children: list[Child] = []

    def start(script: str, settings: Report | None = None, **more: Any) -> Child:  # Any: options
        (tmp_path / "child_script.py").write_text(BEGIN + script)
        children.append(spawn_child("child_script", settings or {}, **more))
        return children[-1]

    yield start
    for child in children:
        child.kill()
        child.close_reports()


def all_reports(child: Child) -> list[Report]:
    """Everything the child says until its end."""
    reports: list[Report] = []
    while child.report_fd >= 0:
        select.select([child.report_fd], [], [])
        reports += child.reports()
    return reports


def test_settings_arrive(spawn: Spawn) -> None:
    """A child gets its settings, and they are in neither its arguments nor its environment."""
    child = spawn(
        "seen = open('/proc/self/cmdline').read() + open('/proc/self/environ').read()\n"
        "reports.write('told', word=settings['word'], seen='geheim' in seen)\n",
        {"word": "geheim " * 100},
    )
    assert all_reports(child) == [{"kind": "told", "word": "geheim " * 100, "seen": False}]
    assert child.wait() == 0


def test_a_child_is_seen_by_its_role(spawn: Spawn) -> None:
    """In what `ps` and `top` show, where all processes of Python look alike."""
    child = spawn("reports.write('told', name=open('/proc/self/comm').read())\n", name="decoder 11")
    assert all_reports(child) == [{"kind": "told", "name": "gd decoder 11\n"}]


def test_inherits_only_what_it_was_given(spawn: Spawn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of descriptors and environment a child has the listed ones only."""
    monkeypatch.setenv("SECRET_OF_PARENT", "1")
    monkeypatch.setenv("PGSERVICEFILE", "kept")
    given = os.open("/dev/null", os.O_RDONLY)
    kept_out = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(kept_out, True)
    child = spawn(
        "import os\n"
        "fds = [int(fd) for fd in os.listdir('/proc/self/fd')]\n"
        "fds = [fd for fd in fds if os.path.exists(f'/proc/self/fd/{fd}')]\n"
        # libffi 3.5 opens itself, in the child, for ctypes.
        "fds = [fd for fd in fds if 'libffi' not in os.readlink(f'/proc/self/fd/{fd}')]\n"
        "fds = sorted(set(fds) - {0, 1, 2, settings['report_fd']})\n"
        "reports.write('has', fds=fds, own=settings['null_fds'], env=sorted(os.environ))\n",
        {"null_fds": [[given], given], "numbers": [given]},
        env_allow=["PG*"],
    )
    [report] = all_reports(child)
    os.close(given)
    os.close(kept_out)

    (own,) = report["fds"]
    assert report["own"] == [[own], own]
    assert "SECRET_OF_PARENT" not in report["env"]
    assert {"PGSERVICEFILE", "PATH", "PYTHONPATH"} <= set(report["env"])


def test_error_crosses_the_border(spawn: Spawn) -> None:
    """An error arrives as the same class, and the child ends with its status."""
    child = spawn(
        "from gaussdecode.errors import SourceError\n"
        "reports.fail(SourceError('the server went away', '57P01'))\n"
    )
    [report] = all_reports(child)
    error = from_record(report["error"])

    assert isinstance(error, SourceError)
    assert (error.reason, error.sqlstate) == ("the server went away", "57P01")
    assert child.wait() == os.EX_UNAVAILABLE


def test_long_reports_of_many_threads_stay_whole(spawn: Spawn) -> None:
    """Reports longer than the pipe are not mixed with others."""
    child = spawn(
        "import threading\n"
        "def tell(i):\n"
        "    for _ in range(20): reports.log('told', i=i, text=str(i) * 90_000)\n"
        "threads = [threading.Thread(target=tell, args=(i,)) for i in range(3)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
    )
    reports = all_reports(child)

    assert len(reports) == 60
    assert all(report["text"] == str(report["i"]) * 90_000 for report in reports)


def test_dies_with_its_parent(tmp_path: Path) -> None:
    """When the parent is killed, the kernel kills the child."""
    (tmp_path / "sleeper.py").write_text(
        BEGIN + "import signal\nreports.write('ready')\nsignal.pause()\n"
    )
    script = (
        "import select, signal, sys; from gaussdecode.ipc.process import spawn_child\n"
        "child = spawn_child('sleeper', {'kept_fd': int(sys.argv[1])})\n"
        "select.select([child.report_fd], [], []); print(child.reports(), flush=True)\n"
        "signal.pause()"
    )
    reading, writing = os.pipe()
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            script,
            str(writing),
        ],
        pass_fds=[writing],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([ROOT, str(tmp_path)])},
    )
    os.close(writing)
    assert parent.stdout is not None
    assert b"ready" in parent.stdout.readline()
    parent.kill()
    parent.communicate()

    assert os.read(reading, 1) == b""  # the child held the other end; now nobody does
    os.close(reading)


def test_ignores_signals_meant_for_the_parent(spawn: Spawn) -> None:
    """Ctrl-C and a stop of the service do not end a child before it has drained."""
    child = spawn(
        "reports.write('ready')\nimport sys\nsys.stdin.read()\nimport select\nselect.select([], [], [])"
    )
    select.select([child.report_fd], [], [])
    child.process.send_signal(signal.SIGINT)
    child.process.send_signal(signal.SIGTERM)

    assert child.wait(0.2) is None
    assert os.getpgid(child.process.pid) != os.getpgid(0)
    child.kill()
    assert child.exit_status() == -signal.SIGKILL


def test_child_that_ends_before_its_settings() -> None:
    """A child that cannot start is seen by its status, not by an error of the parent's pipe."""
    child = spawn_child("gaussdecode.no_such_module", {"long": "x" * 1_000_000})
    assert all_reports(child) == []
    assert child.wait() == 1


def test_hundreds_of_descriptors_arrive(spawn: Spawn) -> None:
    """More than the kernel takes at once; each is the one that it was."""
    files = [os.memfd_create(f"f{number}") for number in range(450)]
    for number, fd in enumerate(files):
        os.write(fd, b"%d" % number)
    child = spawn(
        "import os\n"
        "reports.write('read', found=[int(os.pread(fd, 9, 0)) for fd in settings['all_fds']])\n",
        {"all_fds": files},
    )
    [report] = all_reports(child)
    for fd in files:
        os.close(fd)
    assert report["found"] == list(range(450))


def test_a_child_that_waits_has_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins with the settings it is given later; its arguments are there before."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "waiter.py").write_text(
        "import pathlib, sys\npathlib.Path(sys.argv[1]).touch()\n"
        + BEGIN
        + "reports.write('has', word=settings['word'])\n"
    )
    prepared = Prepared()
    prepared.start("waiter", str(tmp_path / "imported"))
    while not (tmp_path / "imported").exists():
        pass
    waiting = prepared.take("waiter")
    child = waiting.give({"word": "go"}, "reader")
    assert child.name == "reader"
    assert all_reports(child) == [{"kind": "has", "word": "go"}]
    assert child.wait() == 0
    later = prepared.take("waiter", str(tmp_path / "again"))  # nothing waits any more
    later.close()
    prepared.close()


@pytest.mark.parametrize("end", ["kill", "exit"])
def test_a_child_that_waits_ends_with_its_parent(tmp_path: Path, end: str) -> None:
    """However the parent ends, and in silence."""
    (tmp_path / "waiter.py").write_text(BEGIN)
    script = (
        "import os, signal, sys; from gaussdecode.ipc.process import Prepared, Waiting\n"
        "waiting = Waiting('waiter'); print(waiting._process.pid, flush=True)\n"
        "sys.stdin.readline()\n"
        + ("signal.raise_signal(signal.SIGKILL)\n" if end == "kill" else "")
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([ROOT, str(tmp_path)])},
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    watched = os.pidfd_open(pid)
    _, said = parent.communicate(b"\n")  # its standard error ends when the child has ended, too
    assert select.select([watched], [], [], 30)[0]
    os.close(watched)
    assert b"settings" not in said


def test_nobody_took_it() -> None:
    """What was prepared for nothing is ended and reaped."""
    prepared = Prepared()
    prepared.start("gaussdecode.decode.worker")
    waiting = prepared._waiting["gaussdecode.decode.worker"]
    prepared.close()
    assert waiting._process.returncode is not None
    assert isinstance(waiting, Waiting)


def test_descriptors_are_known_by_their_keys() -> None:
    """In lists too; other numbers are none."""
    settings = {"ring_fds": [[3, 4], [5]], "control_fd": 7, "size": 9, "fds_of": 11}
    assert descriptors(settings) == [3, 4, 5, 7]


def test_module_started_by_hand() -> None:
    """Without settings on standard input a child says what it is."""
    outcome = subprocess.run(
        [sys.executable, "-c", BEGIN],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": ROOT},
        text=True,
        check=False,
    )
    assert "started by the daemon" in outcome.stderr


def fake_child(*writes: bytes) -> Child:
    """Make a child that has written these bytes and ended."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    for data in writes:
        os.write(writing, data)
    os.close(writing)
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return Child("decoder 3", process, reading)


@pytest.mark.parametrize("line", [b"{\n", b"[]\n", b'{"no": "kind"}\n', b"\xff\n"])
def test_report_that_is_none(line: bytes) -> None:
    """What is no report is an error with the child's name."""
    with pytest.raises(ChildError, match="decoder 3"):
        fake_child(line).reports()


def test_unfinished_report_of_a_dead_child() -> None:
    """A line that was cut off by death is dropped, the ones before it count."""
    child = fake_child(json.dumps({"kind": "log"}).encode() + b"\n", b'{"kind": "err')
    assert child.reports() == [{"kind": "log"}]
    assert child.reports() == []


def test_report_over_the_limit() -> None:
    """A report is bounded where it is made."""
    reading, writing = os.pipe()
    reports = Reports(writing)
    with pytest.raises(ValueError, match="limit"):
        reports.log("much", text="x" * (1 << 20))
    reports.close()
    assert os.read(reading, 1) == b""
    os.close(reading)


def test_parent_that_is_gone() -> None:
    """A report nobody reads is no error: the child is about to die with its parent."""
    reading, writing = os.pipe()
    os.close(reading)
    reports = Reports(writing)
    reports.log("nobody_listens")
    reports.close()
