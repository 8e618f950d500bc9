"""Tests for `gaussdecode.daemon.status.stopped`."""

import dataclasses
import os
import signal
import subprocess
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kit.daemon import wait_until

from gaussdecode.daemon.session_group import SessionGroup
from gaussdecode.daemon.status import sources
from gaussdecode.daemon.status.processes import Use, read_use
from gaussdecode.daemon.status.sources import find_stopped
from gaussdecode.daemon.status.stopped import Stopped


@pytest.fixture
def child() -> Iterator[int]:
    """A process that waits."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process.pid
        process.kill()


def session(
    pid: int, age: float = 0.1, name: str = "decoder 1"
) -> Any:  # Any: as far as it is used
    """A session with one child, whose last sign of life is so old."""
    return SimpleNamespace(
        process_ids=lambda: {name: pid, "prepared": os.getpid()},
        signs_of_life=lambda: {name: age},
    )


def test_a_stopped_process_is_found_until_it_goes_on(child: int) -> None:
    """By the kernel's word, before any queue is full."""
    assert find_stopped(None) == ()
    assert find_stopped(session(child)) == ()
    os.kill(child, signal.SIGSTOP)
    wait_until(lambda: bool(find_stopped(session(child))), "a stopped process")
    assert find_stopped(session(child)) == (Stopped("decoder 1", child, "T", 0.1),)
    os.kill(child, signal.SIGCONT)
    wait_until(lambda: not find_stopped(session(child)), "a process that goes on")


def test_a_process_without_a_sign_of_life_is_found(
    child: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In whatever state it is; and one that is gone is nothing to look at."""
    use = read_use(child)
    assert use is not None
    monkeypatch.setattr(
        sources, "read_use", lambda pid: None if pid == 1 else dataclasses.replace(use, state="D")
    )
    assert find_stopped(session(child, 29.0)) == ()
    (found,) = find_stopped(session(child, 31.0, "reader"))
    assert found.is_reader
    assert found.what == (
        f"The reader (process {child}) has not moved for 31 s, in state D of the kernel. Nothing lands "
        "until it does."
    )
    assert found.command == f"cat /proc/{child}/stack"
    assert find_stopped(session(1, 31.0)) == ()


def test_of_several_sources_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a reader of its own."""
    monkeypatch.setattr(sources, "read_use", lambda pid: Use(1.0, 1, "T" if pid == 8 else "S"))
    group = object.__new__(SessionGroup)
    group.sessions = cast("Any", {"dn1": session(7), "dn2": session(8, name="reader")})
    (found,) = find_stopped(group)
    assert found.what == (
        "The reader of dn2 (process 8) is stopped, by a signal or a debugger. Nothing lands until it goes on."
    )
    assert found.is_reader
    assert "`kill -CONT 8` lets it go on." in found.action
