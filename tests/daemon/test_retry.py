"""Waiting between sessions."""

from gaussdecode.daemon.retry import Backoff


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
