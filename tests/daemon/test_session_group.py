"""Which error the sessions of several sources end with, and what it says."""

from collections.abc import Callable
from typing import cast

import pytest

from gaussdecode.daemon.session import Session
from gaussdecode.daemon.session_group import SessionGroup
from gaussdecode.errors import DiskError, GaussDecodeError, SourceError, SupersededError


class _Ends:
    """A session that ends at once."""

    def __init__(self, error: GaussDecodeError | None) -> None:
        self._error = error

    def run(self) -> None:
        if self._error is not None:
            raise self._error


def _joint(**errors: GaussDecodeError | None) -> SessionGroup:
    def make(name: str, _: Callable[[], bool], __: Callable[[], None]) -> Session:
        return cast(Session, _Ends(errors[name]))

    return SessionGroup(
        make, tuple(errors), None, lambda: False, lambda: None, lambda: None, lambda: None
    )


def test_an_error_names_its_source() -> None:
    """In its own text, which the log line and the operator see."""
    with pytest.raises(SourceError, match=r"^source b: it went away"):
        _joint(a=None, b=SourceError("it went away")).run()


def test_a_way_in_that_another_closed_is_no_error() -> None:
    """Whichever of them is seen first."""
    _joint(a=SupersededError("over"), b=None).run()
    with pytest.raises(SourceError, match="source b: it went away"):
        _joint(a=SupersededError("over"), b=SourceError("it went away")).run()


def test_a_failure_of_the_landing_is_of_no_source() -> None:
    """Every session sees the same one."""
    failure = DiskError("the disk broke")
    with pytest.raises(DiskError, match=r"^the disk broke$"):
        _joint(a=failure, b=failure).run()
