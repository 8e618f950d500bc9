"""The socket for acts: who may ask, and what clients that misbehave get."""

import errno
import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from gaussdecode.daemon.control import (
    _MAX_CLIENTS,
    ENDS,
    MAX_BYTES,
    Act,
    ActQueue,
    Answer,
    ControlSocket,
    at_root,
)
from gaussdecode.errors import DiskError, SourceError
from gaussdecode.land.names import CONTROL
from gaussdecode.operations.ask_daemon import ask_act
from gaussdecode.settings.load import load
from gaussdecode.settings.sections import Config


class _Main:
    """A main thread that carries out whatever is asked for."""

    def __init__(self, root: Path, allowed: set[int] | None = None) -> None:
        self.queue = ActQueue(seconds=30)
        self.acts: list[Act] = []
        self._is_over = threading.Event()
        self._socket = ControlSocket(root, self.queue.ask, allowed)
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        while not self._is_over.wait(0.01):
            for act in self.queue.take():
                self.acts.append(act)
                act.finish("done")

    def close(self) -> None:
        """End it."""
        self._socket.close()
        self._is_over.set()
        self._thread.join()


@pytest.fixture
def main(tmp_path: Path) -> Iterator[_Main]:
    """One that works in `tmp_path`."""
    made = _Main(tmp_path)
    yield made
    made.close()


def _connect(root: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.settimeout(60)
    with at_root(root) as path:
        client.connect(path)
    return client


def _config(root: Path) -> Config:
    path = root / "orders.yaml"
    path.write_text(
        f"slot: orders\nsource: {{kind: capture, file: /nowhere}}\nlanding: {{root: {root}}}\n"
    )
    return load(path)


def _ask(root: Path, data: bytes) -> dict[str, object]:
    with _connect(root) as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        with client.makefile("rb") as answer:
            record: dict[str, object] = json.loads(answer.readline())
            return record


def test_an_act_is_carried_out_for_its_user(main: _Main, tmp_path: Path) -> None:
    """The answer is main's; the kernel says who asked, whatever the client writes."""
    request = {"act": "snapshot", "table": "s.t", "by": "somebody else"}
    assert _ask(tmp_path, json.dumps(request).encode() + b"\n") == {"is_done": True, "text": "done"}
    (act,) = main.acts
    assert (act.name, act.table) == ("snapshot", "s.t")
    assert act.by.endswith(f"(uid {os.geteuid()})")
    assert (tmp_path / CONTROL).stat().st_mode & 0o777 == 0o600


def test_another_user_is_refused(tmp_path: Path) -> None:
    """Neither root nor the daemon's account: nothing is done, whatever was asked for."""
    main = _Main(tmp_path, allowed={os.geteuid() + 1})
    try:
        answer = _ask(tmp_path, b'{"act": "pause"}\n')
    finally:
        main.close()
    assert answer["is_done"] is False
    assert "may not" in str(answer["text"])
    assert main.acts == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"pause\n",
        b"\xff\xfe\x00\n",
        b"[1]\n",
        b"null\n",
        b"[" * 4000 + b"\n",
        b'{"act": "pause"}',
        b'{"act": 1}\n',
        b'{"act": ["pause"]}\n',
        b'{"act": "_snapshot", "table": "s.t"}\n',
        b'{"act": "carry_out"}\n',
        b'{"act": "snapshot"}\n',
        b'{"act": "snapshot", "table": {"a": 1}}\n',
        b'{"act": "pause", "table": "s.t"}\n',
        b"x" * (MAX_BYTES + 1),
        b'{"act": "pause", "more": "' + b"x" * MAX_BYTES + b'"}\n',
    ],
    ids=lambda data: repr(data[:30]),
)
def test_what_is_no_request_is_refused(main: _Main, tmp_path: Path, data: bytes) -> None:
    """Garbage, half a line, a line without end: an answer that says so, and nothing is done."""
    assert _ask(tmp_path, data)["is_done"] is False
    assert main.acts == []
    assert _ask(tmp_path, b'{"act": "resume"}\n')["is_done"] is True


@pytest.mark.usefixtures("main")
def test_silent_clients_hold_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More clients than there is room for: the next is sent away, and served once there is room."""
    monkeypatch.setattr("gaussdecode.daemon.control._REQUEST_SECONDS", 1.0)
    silent = [_connect(tmp_path) for _ in range(_MAX_CLIENTS)]
    late = ask_act(_config(tmp_path), "pause", None)
    assert late == Answer(is_done=False, text="8 others ask at this moment; ask again")
    for client in silent[:-1]:
        client.close()
    with silent[-1] as slow, slow.makefile("rb") as answer:
        assert json.loads(answer.readline())["is_done"] is False, "it was too slow"
    assert _ask(tmp_path, b'{"act": "resume"}\n')["is_done"] is True


def test_what_takes_long_is_said_to_go_on() -> None:
    """Nobody carries the act out: the client is told that it is asked for still."""
    queue = ActQueue(seconds=0.05)
    answer = queue.ask("pause", None, "me")
    assert answer == Answer(is_done=False, text=answer.text)
    assert "not taken back" in answer.text
    assert [act.name for act in queue.take()] == ["pause"]
    assert queue.take() == []


def test_a_socket_that_was_left_is_replaced(tmp_path: Path) -> None:
    """A daemon that was killed leaves its socket; a deep landing has one as well."""
    root = tmp_path / ("d" * 60) / ("e" * 60)
    root.mkdir(parents=True)
    left = socket.socket(socket.AF_UNIX)
    with at_root(root) as path:
        left.bind(path)
    left.close()
    main = _Main(root)
    try:
        assert _ask(root, b'{"act": "rotate"}\n')["is_done"] is True
    finally:
        main.close()


def test_answers_leave_before_the_daemon_ends(tmp_path: Path) -> None:
    """Who waits when it ends has the answer by then."""
    queue, taken = ActQueue(seconds=60), threading.Event()

    def ask(*words: Any) -> Answer:
        taken.set()
        return queue.ask(*words)

    control = ControlSocket(tmp_path, ask)
    with _connect(tmp_path) as client:
        client.sendall(b'{"act": "rotate"}\n')
        assert taken.wait(60)
        for act in queue.close():
            act.refuse(ENDS)
        control.close()
        client.setblocking(False)
        assert json.loads(client.recv(MAX_BYTES)) == {"is_done": False, "text": ENDS}


def test_a_full_disk_is_no_mistake_of_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The unit starts the daemon again."""

    def full(_: Path) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("gaussdecode.daemon.control.at_root", full)
    with pytest.raises(DiskError, match="No space left"):
        ControlSocket(tmp_path, ActQueue().ask)


@pytest.mark.parametrize("state", ["starting", None])
def test_no_socket_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str | None) -> None:
    """A daemon that recovers its landing is there all the same, and the message says so."""

    def status(_: Config) -> dict[str, str]:
        if state is None:
            raise SourceError("no daemon")
        return {"state": state}

    monkeypatch.setattr("gaussdecode.operations.ask_daemon.ask_status", status)
    expected = "is it running" if state is None else "its state is starting: ask again"
    with pytest.raises(SourceError, match=expected):
        ask_act(_config(tmp_path), "pause", None)
