"""Telling a URL and a program of trouble: what is told, how often, and what fails."""

import io
import json
import os
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gaussdecode import logs
from gaussdecode.daemon import troublehook
from gaussdecode.daemon.status.states import STATES
from gaussdecode.daemon.status.trouble import Trouble
from gaussdecode.daemon.troublehook import Told, TroubleHook
from gaussdecode.settings.sections import NotifyConfig

BY_NAME = {state.name: state for state in STATES}
GAP = Trouble(BY_NAME["gap"], "A gap was recorded.", "Run gaps.")
LAGGING = Trouble(BY_NAME["lagging"], "The landing is behind.", "See the log.")
NOTE = Trouble(BY_NAME["not-yet-streaming"], "Not streaming: starting.", "Wait.")


class _Receiver(ThreadingHTTPServer):
    """Keeps what is posted; answers with `status`."""

    status = 200

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        super().__init__(("127.0.0.1", 0), _Keeping)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        """With something that looks like a secret."""
        return f"http://127.0.0.1:{self.server_port}/hook/s3cret"


class _Keeping(BaseHTTPRequestHandler):
    server: _Receiver

    def do_POST(self) -> None:
        """Keep it."""
        self.server.got.append(
            json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)))
        )
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def receiver() -> Iterator[_Receiver]:
    """One that runs."""
    server = _Receiver()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def log() -> io.StringIO:
    """What is logged."""
    lines = io.StringIO()
    logs.configure("info", file=lines, is_readable=False)
    return lines


def _program(directory: Path, text: str) -> Path:
    path = directory / "hook"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def _told(receiver: _Receiver) -> list[tuple[str, bool]]:
    return [(of["state"], of["is_over"]) for of in receiver.got]


def test_begin_and_end_are_told_once(receiver: _Receiver) -> None:
    """However often it is looked at; notes are nobody's trouble; what flaps waits for the interval."""
    present: list[Trouble] = [NOTE, GAP]
    hook = TroubleHook(
        NotifyConfig(url=receiver.url, interval=60.0), "orders", lambda: present, Told()
    )
    for now in (0.0, 1.0, 100.0):
        hook.look(now)
    assert _told(receiver) == [("gap", False)]
    record = receiver.got[0]
    assert (record["slot"], record["severity"], record["what"]) == ("orders", "error", GAP.what)
    present[:] = [LAGGING]
    hook.look(101.0)
    assert _told(receiver)[1:] == [("gap", True), ("lagging", False)]
    for now in (102.0, 104.0, 106.0):
        present[:] = []
        hook.look(now)
        present[:] = [LAGGING]
        hook.look(now + 1)
    assert _told(receiver)[3:] == [("lagging", True)], "back within the interval: not told"
    hook.look(161.0)
    assert _told(receiver)[4:] == [("lagging", False)], "still there after it"


def test_what_was_told_outlives_a_reload(receiver: _Receiver) -> None:
    """A hook of the next configuration tells the end, and nothing twice."""
    told, config = Told(), NotifyConfig(url=receiver.url)
    TroubleHook(config, "orders", lambda: [GAP], told).look(0.0)
    TroubleHook(config, "orders", lambda: [GAP], told).look(1.0)
    TroubleHook(config, "orders", list, told).look(2.0)
    assert _told(receiver) == [("gap", False), ("gap", True)]


def test_a_program_reads_json(tmp_path: Path) -> None:
    """On its standard input, and without a shell."""
    out = tmp_path / "out"
    program = _program(tmp_path, f"cat >> {out}; echo >> {out}")
    hook = TroubleHook(NotifyConfig(command=program), "orders", lambda: [GAP], Told())
    hook.look(0.0)
    assert json.loads(out.read_text())["state"] == "gap"


def test_failures_are_logged_once(receiver: _Receiver, log: io.StringIO, tmp_path: Path) -> None:
    """Without the URL; what could not be told is told again after the interval."""
    receiver.status = 500
    program = _program(tmp_path, "exit 3")
    config = NotifyConfig(url=receiver.url, command=program, interval=10.0)
    hook = TroubleHook(config, "orders", lambda: [GAP], Told())
    for now in (0.0, 1.0, 11.0):
        hook.look(now)
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [line["reason"] for line in lines] == [
        "notify.url: status 500", "notify.command: ended with 3",
    ]  # fmt: skip
    assert "s3cret" not in log.getvalue()
    receiver.status = 200
    program.write_text("#!/bin/sh\ncat\n")
    hook.look(22.0)
    hook.look(40.0)
    assert len(receiver.got) == 3


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:1/", "http://nowhere.invalid/", "http://[::1/", "https://127.0.0.1:1/"],
)
def test_a_url_that_is_away(url: str, log: io.StringIO) -> None:
    """It is an error in the log, and nothing else."""
    TroubleHook(NotifyConfig(url=url), "orders", lambda: [GAP], Told()).look(0.0)
    assert log.getvalue().count("notify_failed") == 1
    assert url not in log.getvalue()


def test_a_program_that_hangs_is_killed(
    tmp_path: Path, log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its children, after its time or when the daemon ends."""
    monkeypatch.setattr(troublehook, "_LIMIT_SECONDS", 0.5)
    mine = tmp_path / "pid"
    program = _program(tmp_path, f"echo $$ > {mine}; sleep 1000")
    TroubleHook(NotifyConfig(command=program), "orders", lambda: [GAP], Told()).look(0.0)
    assert "killed, for it took longer" in log.getvalue()
    with pytest.raises(ProcessLookupError):
        os.kill(int(mine.read_text()), 0)
    monkeypatch.setattr(troublehook, "_LIMIT_SECONDS", 600)
    monkeypatch.setattr(troublehook, "_LOOK_SECONDS", 0.01)
    mine.unlink()
    hook = TroubleHook(NotifyConfig(command=program), "orders", lambda: [GAP], Told())
    hook.start()
    while not (mine.exists() and mine.read_text()):
        time.sleep(0.01)
    hook.close()
    hook._thread.join(60)
    assert not hook._thread.is_alive()


def test_states_that_cannot_be_read_end_nothing(
    log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon is ending, or begins anew: it is looked again."""
    monkeypatch.setattr(troublehook, "_LOOK_SECONDS", 0.01)
    looks = 0

    def troubles() -> list[Trouble]:
        nonlocal looks
        looks += 1
        raise ZeroDivisionError

    hook = TroubleHook(NotifyConfig(url="http://127.0.0.1:1/"), "orders", troubles, Told())
    hook.start()
    while looks < 3:
        time.sleep(0.01)
    hook.close()
    assert log.getvalue().count("notify_failed") == 1
