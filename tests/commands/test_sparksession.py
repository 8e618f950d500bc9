"""How a command with Spark ends."""

import threading

import pytest

from gaussdecode.commands._sparksession import EndedBy


def test_what_fails_before_a_stop_is_told() -> None:
    """It is an error as any other."""
    with pytest.raises(ValueError, match="bad"), EndedBy(threading.Event()):
        raise ValueError("bad")


def test_what_fails_of_a_stop_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    """Only that it begins again; an interrupt goes through."""
    stop = threading.Event()
    stop.set()
    with EndedBy(stop):
        raise ConnectionResetError("Spark has gone")
    assert "begins again" in capsys.readouterr().err
    with pytest.raises(KeyboardInterrupt), EndedBy(stop):
        raise KeyboardInterrupt
