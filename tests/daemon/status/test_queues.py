"""Tests for `gaussdecode.daemon.status.queues`."""

import pytest

from gaussdecode.daemon.status.queues import Fill, mean_share
from gaussdecode.ipc.ring import Ring


@pytest.mark.parametrize(
    ("fill", "length", "share"),
    [
        (Fill(0, 128, 0, 1 << 20), 0, 0.0),
        (Fill(1, 128, 64, 1 << 20), 1, 1 / 128),
        (Fill(128, 128, 4096, 1 << 20), 128, 1.0),
        (Fill(15, 128, 1 << 20, 1 << 20), 128, 1.0),
        (Fill(15, 128, 1 << 19, 1 << 20), 64, 0.5),
        (Fill(100, 128, 1 << 19, 1 << 20), 100, 100 / 128),
    ],
)
def test_the_bound_that_is_nearer_counts(fill: Fill, length: int, share: float) -> None:
    """A queue that is full by bytes is as long as one that is full by entries."""
    assert fill.length == length
    assert fill.share == pytest.approx(share)


def test_a_ring_tells_both() -> None:
    """Large messages fill its bytes, small ones its entries."""
    large, small = Ring.create(1 << 16, 128), Ring.create(1 << 16, 8)
    while large.put_bytes(bytes(9000), 0.01):
        pass
    while small.put_bytes(b"x", 0.01):
        pass
    assert Fill.of(large).entries < 10
    assert Fill.of(large).length > 100
    assert Fill.of(small).length == 8
    assert mean_share([Fill.of(large), Fill.of(small)]) > 0.8
    assert mean_share([]) == 0
    large.close()
    small.close()
