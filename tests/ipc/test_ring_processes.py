"""The ring between two processes: order, back-pressure, and the death of either end."""

import contextlib
import hashlib
import os
import runpy
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import gaussdecode
from gaussdecode.ipc.ring import Ring

PEER = Path(__file__).with_name("ring_peer.py")
PATH = os.pathsep.join([str(Path(gaussdecode.__file__).parents[1]), *sys.path])

Process = subprocess.Popen[str]


class Peers:
    """Starts the other ends and takes care that none outlives its test."""

    def __init__(self) -> None:
        self.started: list[Process] = []

    def start(self, role: str, ring: Ring, seed: int, count: int, largest: int) -> Process:
        """Give one end of the ring to a new process."""
        fds = ring.producer_fds() if role == "produce" else ring.consumer_fds()
        numbers = [",".join(map(str, fds)), str(seed), str(count), str(largest)]
        peer = subprocess.Popen(
            [sys.executable, str(PEER), role, *numbers],
            pass_fds=fds,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": PATH},
        )
        if role == "produce":
            ring.close_producer_side()
        else:
            ring.close_consumer_side()
        self.started.append(peer)
        return peer


@pytest.fixture
def peers() -> Iterator[Peers]:
    """Give what starts other ends; they are ended after the test."""
    peers = Peers()
    yield peers
    for peer in peers.started:
        peer.kill()
        peer.wait()
        assert peer.stdout is not None
        peer.stdout.close()


def numbered(seed: int, count: int, largest: int) -> Iterator[bytes]:
    """Make the same messages as the peer."""
    yield from runpy.run_path(str(PEER))["messages"](seed, count, largest)


@pytest.mark.parametrize(
    ("capacity", "max_entries", "count", "largest"),
    [
        (1, 1, 3000, 100),
        (1, 2, 800, 20_000),
        (1, 1024, 50_000, 900),
        (8192, 3, 3000, 3000),
        (65_536, 128, 5000, 30_000),
        (65_536, 1, 12, 8_000_000),
        (1 << 20, 1024, 300, 3_000_000),
    ],
)
def test_all_arrive_in_order(
    peers: Peers, capacity: int, max_entries: int, count: int, largest: int
) -> None:
    """Messages of all sizes pass rings of all sizes whole, once, in order; none waits for ever."""
    ring = Ring.create(capacity, max_entries)
    consumer = peers.start("consume", ring, 7, count, largest)
    producer = peers.start("produce", ring, 7, count, largest)
    output, _ = consumer.communicate()
    digest = hashlib.sha256(b"".join(numbered(7, count, largest)))

    assert output.split() == [str(count), digest.hexdigest()]
    assert (producer.wait(), consumer.returncode) == (0, 0)
    assert ring.length() == ring.used_bytes() == 0
    assert ring.stats()["bytes_in"] == sum(map(len, numbered(7, count, largest)))
    assert ring.stats()["peak_bytes"] <= ring.capacity_bytes


def test_room_for_more_than_one_release(peers: Peers) -> None:
    """A piece that needs the room of many small ones is woken often, and not once too seldom."""
    ring = Ring.create(1, 1000)
    consumer = peers.start("dawdle", ring, 0, 150_000, 0)

    for number in range(150_000):
        message = bytes(1 if number % 8 else 900)
        while not ring.put_bytes(message, 0):
            select.select([ring.space_fd], [], [])

    assert consumer.wait() == 0
    assert ring.length() == 0


@pytest.mark.parametrize("attempt", range(8))
def test_killed_producer(peers: Peers, attempt: int) -> None:
    """Every message that was stored whole arrives, nothing else, and then the end."""
    ring = Ring.create(65_536, 16)
    producer = peers.start("produce", ring, attempt, 10**6, 100_000)
    expected = numbered(attempt, 10**6, 100_000)
    for _ in range(20 * attempt):
        assert ring.get_bytes() == next(expected)
    producer.send_signal(signal.SIGKILL)

    with contextlib.suppress(EOFError):
        while True:
            assert ring.get_bytes() == next(expected)
    assert ring.producer_gone
    assert producer.wait() == -signal.SIGKILL


def test_killed_consumer_of_a_full_ring(peers: Peers) -> None:
    """A producer that waits for room learns that none will come."""
    ring = Ring.create(65_536, 4)
    consumer = peers.start("consume", ring, 0, 0, 1)
    consumer.wait()
    full = Ring.create(65_536, 4)
    sleeper = peers.start("consume", full, 1, 10**6, 10)
    sleeper.send_signal(signal.SIGSTOP)
    while full.put_bytes(b"", 0):
        pass
    sleeper.send_signal(signal.SIGKILL)

    for dead in (ring, full):
        with contextlib.suppress(BrokenPipeError):
            while True:
                dead.put_bytes(b"")
        assert dead.consumer_gone


def test_stopped_consumer_stops_the_producer(peers: Peers) -> None:
    """While nobody takes, the producer stores up to the limit and sleeps."""
    ring = Ring.create(1 << 20, 16)
    producer = peers.start("produce", ring, 3, 10_000, 100)
    while ring.stats()["full_count"] == 0:
        time.sleep(0.001)

    assert ring.length() == 16
    assert producer.poll() is None

    for message in numbered(3, 10_000, 100):
        assert ring.get_bytes() == message
    assert producer.wait() == 0
    with pytest.raises(EOFError):
        ring.get_bytes()


def test_no_memory_is_a_configuration_error() -> None:
    """A kernel that refuses the pages is reported with the option's name."""
    script = (
        "import resource; from gaussdecode.ipc.ring import Ring\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))\n"
        "Ring.create(1 << 20, 1)"
    )
    outcome = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": PATH},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert "ConfigError: no memory for a ring of" in outcome.stderr
    assert "lower ring-bytes" in outcome.stderr
