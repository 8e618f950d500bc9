"""The other end of a ring, in a process of its own; run by test_ring_processes.py.

``ring_peer.py ROLE FD,FD,FD SEED COUNT LARGEST``: both ends make the same messages from the
seed, so the consumer knows what must come. They never wait inside the ring but poll its
descriptors, as loops do that have sockets to look after too: a wake-up that is lost is lost.
"""

import hashlib
import random
import select
import sys
from collections.abc import Iterator

from gaussdecode.ipc.ring import Ring


def messages(seed: int, count: int, largest: int) -> Iterator[bytes]:
    """Make `count` messages of 0 to `largest` bytes, small ones being as likely as large."""
    rng = random.Random(seed)
    for _ in range(count):
        size = min(int(2 ** rng.uniform(0, largest.bit_length())) - 1, largest)
        yield rng.randbytes(size)


def produce(ring: Ring, seed: int, count: int, largest: int) -> None:
    """Store the messages, as fast as there is room."""
    for message in messages(seed, count, largest):
        while not ring.put_bytes(message, 0):
            select.select([ring.space_fd], [], [])


def consume(ring: Ring, seed: int, count: int, largest: int) -> None:
    """Take the messages until the producer ends; print how many came and their digest."""
    digest = hashlib.sha256()
    taken = 0
    for message in messages(seed, count, largest):
        try:
            while (got := ring.get_bytes(0)) is None:
                select.select([ring.data_fd], [], [])
        except EOFError:
            break
        if got != message:
            sys.exit(f"message {taken} is not what was sent")
        digest.update(message)
        taken += 1
    print(taken, digest.hexdigest(), flush=True)


def dawdle(ring: Ring, count: int) -> None:
    """Take that many messages, each a little later than the producer would like."""
    for _ in range(count):
        while ring.get_bytes(0) is None:
            select.select([ring.data_fd], [], [])
        for _ in range(250):
            pass


def main() -> None:
    """Do what the arguments say."""
    role, fds, *numbers = sys.argv[1:]
    seed, count, largest = map(int, numbers)
    descriptors = [int(fd) for fd in fds.split(",")]
    if role == "produce":
        produce(Ring.attach_producer(descriptors), seed, count, largest)
    elif role == "dawdle":
        dawdle(Ring.attach_consumer(descriptors), count)
    else:
        consume(Ring.attach_consumer(descriptors), seed, count, largest)


if __name__ == "__main__":
    main()
