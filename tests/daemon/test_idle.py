"""A rest is noticed once, and not before it has lasted."""

from gaussdecode.daemon.idle import Idle
from gaussdecode.host.memory import REST_SECONDS

REST_NS = int(REST_SECONDS * 1e9)


def test_once_for_each_rest() -> None:
    """After so long without a move, and not again before the next one."""
    idle = Idle()
    assert not idle.look(1000 + REST_NS - 1, 1000)
    assert idle.look(1000 + REST_NS, 1000)
    assert not idle.look(1000 + 9 * REST_NS, 1000)
    assert not idle.look(2000 + 9 * REST_NS, 2000 + 9 * REST_NS)
    assert idle.look(2000 + 10 * REST_NS, 2000 + 9 * REST_NS)
