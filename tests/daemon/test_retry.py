"""Waiting between sessions."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaussdecode.daemon import retry
from gaussdecode.daemon.retry import Backoff
from gaussdecode.daemon.supervisor import Supervisor
from gaussdecode.errors import LoginRefusedError
from gaussdecode.settings.landing_sections import LandingConfig
from gaussdecode.settings.rules import SourceKind
from gaussdecode.settings.sections import Config, MonitoringConfig, RingConfig
from gaussdecode.settings.source_sections import DecodingConfig, SourceConfig


def test_wait_doubles_up_to_the_longest() -> None:
    """Each attempt that fails at once waits twice as long."""
    backoff = Backoff(1.0, 10.0, jitter=lambda: 1.0)
    assert [backoff.next_wait(0.0) for _ in range(6)] == [1, 2, 4, 8, 10, 10]


def test_wait_starts_over_after_a_long_session() -> None:
    """A session that lasted shows that the source is well."""
    backoff = Backoff(1.0, 10.0, jitter=lambda: 1.0)
    backoff.next_wait(0.0)
    backoff.next_wait(0.0)
    assert backoff.next_wait(3600.0) == 1.0


def test_jitter_never_exceeds_the_wait() -> None:
    """Daemons that fail together come back apart, and not later than said."""
    waits = [Backoff(2.0, 10.0).next_wait(0.0) for _ in range(200)]
    assert 1.0 <= min(waits) < max(waits) <= 2.0


@pytest.fixture
def supervisor() -> Supervisor:
    """It has been let in before."""
    config = Config(
        path=Path("orders.yaml"),
        slot="orders",
        source=SourceConfig(
            kind=SourceKind.POSTGRESQL, dsn="host=nowhere", retry_first=1.0, retry_max=100.0
        ),
        decoding=DecodingConfig.of(SourceKind.POSTGRESQL),
        landing=LandingConfig(root=Path("/nowhere")),
        ring=RingConfig(),
        monitoring=MonitoringConfig(),
    )
    notifier: Any = SimpleNamespace(status=lambda _: None, stopping=lambda _: None)
    made = Supervisor(config, notifier)
    made._has_streamed = True
    return made


@pytest.mark.parametrize(("streams", "wanted"), [(False, [5, 10, 20]), (True, [5, 5, 5])])
def test_an_attempt_at_a_session_is_no_session_that_lasted(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch, wanted: list[float], *, streams: bool
) -> None:
    """Its reader's log-in is refused after a minute of slow names: waits go on growing."""
    monkeypatch.setattr(supervisor._retry._login_backoff, "_jitter", lambda: 1.0)
    now, waits = [0.0], []

    def run() -> None:
        if streams:
            supervisor._on_streaming()
        now[0] += 61.0
        raise LoginRefusedError("too many connections", "53300")

    def pass_time(seconds: float, _is_over: Callable[[], bool]) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            supervisor._stop.set()

    monkeypatch.setattr(retry, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(supervisor, "_pass_time", pass_time)
    pipeline: Any = SimpleNamespace(
        session=lambda *_: SimpleNamespace(run=run),
        session_ended=lambda _: None,
        streaming=SimpleNamespace(shows_uncommitted=False),
    )
    readings: Any = SimpleNamespace(retire=lambda _: None)
    supervisor._run_sessions(pipeline, readings)
    assert waits == wanted
