"""How long does a start take on a landing with a million entries?

Writes the checkpoints of a landing directly (every entry real and chained), then opens it as
the daemon does: lock, layout, recovery, state. What counts is that the time does not grow
with the log; run it with two sizes to see.

    python bench/landing_start.py [--entries 1000000] [--root DIR] [--out FILE]
"""

import argparse
import dataclasses
import hashlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import corpus

from gaussdecode.land.checkpoint import BLOCK
from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.entry_steps import Draft
from gaussdecode.land.files import Files
from gaussdecode.land.names import CHECKPOINTS, entry_path
from gaussdecode.land.state import LogState
from gaussdecode.model.entry import CheckpointHeader, CommitEntry, checkpoint_name
from gaussdecode.model.landing import EntryKind, SourceIdentity, SourcePosition

IDENTITY: Final = SourceIdentity("postgresql", "7000000000000000001", "shop", "orders", "pgoutput")
NUMBER: Final = 987654321  # stands for the number, the time and the position in the template
REPEATS: Final = 9


def entries(first: CommitEntry, count: int) -> Iterator[bytes]:
    """Exact bytes of idle entries after the first one."""
    shape = dataclasses.replace(
        first,
        kind=EntryKind.IDLE,
        n=NUMBER,
        mtime_ms=NUMBER,
        positions={"orders": SourcePosition(0, 1, NUMBER)},
    )
    body = shape.to_bytes()[:-75].replace(b"%", b"%%").replace(str(NUMBER).encode(), b"%d")
    template = body.replace(first.previous.encode(), b"%b") + b"}"
    previous = first.hash.encode()
    for n in range(1, count):
        # Sorted keys: mtime_ms, n, positions, previous.
        raw = template % (first.mtime_ms + n, n, n + 1, previous)
        previous = hashlib.sha256(raw).hexdigest().encode()
        yield raw[:-1] + b',"hash":"' + previous + b'"}'


def build(root: Path, count: int) -> None:
    """Make a landing of that many entries, pruned as the daemon does it."""
    log = CommitLog.open(Files(root), IDENTITY)
    first = log.commit(Draft(kind=EntryKind.GENESIS, position=SourcePosition(0, 1, 1)))
    log.close()
    state = LogState()
    state.fold(first)
    lines, previous = [first.to_bytes()], first.previous
    for raw in entries(first, count):
        lines.append(raw)
        if len(lines) == BLOCK:
            header = _write(root, lines, state, previous)
            previous, lines = header.hash, []
    newest = CommitEntry.from_bytes(raw).n
    (root / entry_path(0)).unlink()
    kept = (root / CHECKPOINTS / checkpoint_name(newest - BLOCK + 1, newest)).read_bytes()
    for n, raw in enumerate(kept.split(b"\n")[1:-1], newest - BLOCK + 1):
        (root / entry_path(n)).write_bytes(raw)


def _write(root: Path, lines: list[bytes], state: LogState, previous: str) -> CheckpointHeader:
    last = CommitEntry.from_bytes(lines[-1])
    state.next_n, state.last_hash = last.n + 1, last.hash
    state.positions, state.committed_time, state.mtime_ms = (
        last.positions,
        last.committed_time,
        last.mtime_ms,
    )
    content = b"\n".join(lines) + b"\n"
    header = state.to_header(last.n - len(lines) + 1, previous, hashlib.sha256(content).hexdigest())
    path = root / CHECKPOINTS / checkpoint_name(header.first, header.last)
    path.write_bytes(header.to_line() + b"\n" + content)
    return header


def measure(root: Path) -> tuple[float, int]:
    """Open and close once."""
    started = time.perf_counter()
    log = CommitLog.open(Files(root), IDENTITY)
    seconds = time.perf_counter() - started
    next_n = log.next_n
    log.close()
    return seconds, next_n


def main() -> None:
    """Build, measure, print JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--root", type=Path)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.root) as directory:
        root = Path(directory)
        started = time.perf_counter()
        build(root, args.entries - args.entries % BLOCK)
        built = time.perf_counter() - started
        runs = [measure(root) for _ in range(REPEATS)]
        seconds = [run[0] for run in runs]
        result = {
            "bench": "landing_start",
            "entries": runs[0][1],
            "build_seconds": round(built, 1),
            "seconds": corpus.spread(seconds),
            "machine": corpus.machine(),
        }
        corpus.write_result(args.out, result)


if __name__ == "__main__":
    main()
