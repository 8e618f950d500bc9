"""Tests for `gaussdecode.daemon.status.processes`."""

import os

import pytest

from gaussdecode.daemon.status import processes
from gaussdecode.daemon.status.processes import Processes, Use, read_use


def test_a_process_is_read_as_the_kernel_counts_it() -> None:
    """Ours: its time is that of os.times(), and it holds memory."""
    sum(range(2_000_000))
    use = read_use(os.getpid())
    assert use is not None
    assert 0 < use.cpu_seconds <= sum(os.times()[:2]) + 1
    assert use.resident_bytes > 1_000_000


def test_a_process_that_is_gone_is_none() -> None:
    """Number 0 is nobody's."""
    assert read_use(0) is None


def test_time_of_those_that_are_gone_is_carried_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next decoder begins at zero, the counter does not; memory is only that of now."""
    uses: dict[int, Use | None] = {7: Use(5.0, 100)}
    monkeypatch.setattr(processes, "read_use", lambda pid: uses[pid])
    known = Processes()
    seen = [known.values({"decoder 0": 7})]
    uses[7] = None
    seen += [known.values({"decoder 0": 7}), known.values({})]
    uses[8] = Use(2.0, 300)
    seen += [known.values({"decoder 0": 8})]
    key = ("decoder 0",)
    assert [of["daemon_cpu_seconds_total"][key] for of in seen] == [5, 5, 5, 7]
    assert [of["daemon_resident_bytes"] for of in seen] == [{key: 100}, {}, {}, {key: 300}]
