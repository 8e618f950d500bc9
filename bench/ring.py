"""How fast do messages pass between two processes: through a ring, and through os.pipe?

``python bench/ring.py [--size BYTES] [--total BYTES] [--rounds N] [--out FILE]``

Both ways are measured in turn, several times, in one run; the figures are the medians in
MB/s (10^6 bytes) of what the consumer has in hand, and the CPU time of both processes. Each
way pays what its use in Python costs: the ring's `get_bytes` makes a copy of each message,
and the pipe (1 MiB large) has it read into one buffer that is used again. So the ring's
figure is a lower bound: Cython code reads messages where they lie. The producer sends the
same bytes again and again, out of its cache, on both ways; what a ring holds when the clock
starts is counted (16 messages of the default size).
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import corpus

from gaussdecode.ipc.ring import Ring

MIB = 1 << 20
F_SETPIPE_SZ = 1031
PRODUCER = """
import os, sys
from gaussdecode.ipc.ring import Ring
way, fds, size, count = sys.argv[1], [int(fd) for fd in sys.argv[2].split(",")], *map(int, sys.argv[3:])
message = b"x" * size
if way == "ring":
    ring = Ring.attach_producer(fds)
    for _ in range(count):
        ring.put_bytes(message)
else:
    for _ in range(count):
        rest = memoryview(message)
        while rest:
            rest = rest[os.write(fds[0], rest):]
"""


def start(way: str, fds: tuple[int, ...], size: int, count: int) -> subprocess.Popen[bytes]:
    """Start the producer with its descriptors."""
    arguments = [way, ",".join(map(str, fds)), str(size), str(count)]
    path = os.pathsep.join(filter(None, sys.path))
    return subprocess.Popen(
        [sys.executable, "-c", PRODUCER, *arguments],
        pass_fds=fds,
        env={**os.environ, "PYTHONPATH": path},
    )


def through_ring(size: int, count: int) -> float:
    """Move the messages; give the seconds from the first message in hand to the last."""
    ring = Ring.create(16 * MIB, 128)
    producer = start("ring", ring.producer_fds(), size, count)
    ring.close_producer_side()
    ring.get_bytes()
    began = time.perf_counter()
    for _ in range(count - 1):
        ring.get_bytes()
    seconds = time.perf_counter() - began
    producer.wait()
    ring.close()
    return seconds


def through_pipe(size: int, count: int) -> float:
    """Do the same with os.pipe."""
    import fcntl

    reading, writing = os.pipe()
    fcntl.fcntl(writing, F_SETPIPE_SZ, MIB)
    producer = start("pipe", (writing,), size, count)
    os.close(writing)
    buffer = memoryview(bytearray(size))
    began = 0.0
    with open(reading, "rb", buffering=0) as stream:
        for _ in range(count):
            rest = buffer
            while rest:
                rest = rest[stream.readinto(rest) :]
            began = began or time.perf_counter()
        seconds = time.perf_counter() - began
    producer.wait()
    return seconds


def cpu_seconds() -> float:
    """CPU time of this process and of the children that have ended."""
    usages = (
        resource.getrusage(resource.RUSAGE_SELF),
        resource.getrusage(resource.RUSAGE_CHILDREN),
    )
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def main() -> None:
    """Measure both ways in turn and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=MIB)
    parser.add_argument("--total", type=int, default=4096 * MIB)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    count = options.total // options.size
    ways: dict[str, Callable[[int, int], float]] = {"ring": through_ring, "pipe": through_pipe}
    rates: dict[str, list[float]] = {way: [] for way in ways}
    cpu: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(options.rounds):
        for way, move in ways.items():
            before = cpu_seconds()
            seconds = move(options.size, count)
            rates[way].append((count - 1) * options.size / seconds / 1e6)
            cpu[way].append((cpu_seconds() - before) / (count * options.size / 1e9) * 1000)
    result = {
        way: {
            "mb_per_second": round(statistics.median(rates[way])),
            "lowest": round(min(rates[way])),
            "highest": round(max(rates[way])),
            "messages_per_second": round(statistics.median(rates[way]) * 1e6 / options.size),
            "cpu_ms_per_gb": round(statistics.median(cpu[way])),
        }
        for way in ways
    }
    sizes = {"size": options.size, "rounds": options.rounds}
    corpus.write_result(
        options.out, {"bench": "ring", **sizes, **result, "machine": corpus.machine()}
    )


if __name__ == "__main__":
    main()
