"""Runs of a scenario of `check.py`, in a process of their own; prints what each cost as JSON.

What is counted begins with the stream, so that starting Python and importing are not in it: CPU
seconds of all processes, and calls for memory where `allocations.py` counts them. With --base
each run stands between two measurements of `checkbase.py`.

    python bench/checkrun.py [--times N] [--base] replay RECORDING --root DIR [--decoders N]
    python bench/checkrun.py [--times N] [--base] decode --loops N
"""

import argparse
import contextlib
import io
import json
import os
import random
import resource
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import allocations
import checkbase
import corpus  # noqa: F401 - finds the package's test kit
import decode
from kit import wire

from gaussdecode import cli
from gaussdecode._wire import BatchDecoder
from gaussdecode.commands import replay
from gaussdecode.daemon.pipeline import Pipeline
from gaussdecode.land import tablefile

_COUNTS: Final = os.environ.get("GAUSSDECODE_BENCH_COUNTS")


class Spent(NamedTuple):
    """What was spent up to a moment."""

    cpu_seconds: float
    calls: int

    @classmethod
    def now(cls) -> "Spent":
        """By this process, its threads, and its children, running or ended."""
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = time.process_time() + ended.ru_utime + ended.ru_stime + _children_seconds()
        return cls(cpu, allocations.total(Path(_COUNTS)) if _COUNTS else 0)

    def since(self, before: "Spent") -> "Spent":
        """What was spent in between."""
        return Spent(self.cpu_seconds - before.cpu_seconds, self.calls - before.calls)


def _children_seconds() -> float:
    """CPU seconds of the children that run now."""
    spent = 0
    for task in Path("/proc/self/task").glob("*/children"):
        for pid in task.read_text().split():
            for account in Path(f"/proc/{pid}/task").glob("*/schedstat"):
                with contextlib.suppress(OSError):
                    spent += int(account.read_text().split()[0])
    return spent / 1e9


def run_replay(recording: str, root: str, decoders: int) -> Spent:
    """Land a recording; gives what was spent from the beginning of its stream on."""
    began: list[Spent] = []

    class Watched(Pipeline):
        """Notes what was spent when the stream begins."""

        def session(self, on_tick: Callable[[], None], on_streaming: Callable[[], None]) -> Any:
            def note() -> None:
                began.append(Spent.now())
                on_streaming()

            return super().session(on_tick, note)

    # On one core chance decides whether a table gets a second file, which costs calls: it gets none.
    tablefile._SPLIT_BYTES = sys.maxsize  # type: ignore[misc]  # noqa: SLF001
    replay.Pipeline = Watched  # type: ignore[attr-defined]
    shutil.rmtree(root, ignore_errors=True)
    arguments = ["replay", recording, "--root", root, "--decoders", str(decoders), "--json"]
    with contextlib.redirect_stdout(io.StringIO()):
        status = cli.main(arguments)
    if status:
        raise SystemExit(status)
    return Spent.now().since(began[0])


def decode_rows() -> list[list[str | None]]:
    """Rows of the decoder alone: about a mebibyte of ten mixed columns."""
    return decode.rows_of([held.kind for held, _ in decode.MIXED], random.Random("check"))


def run_decode(loops: int) -> Spent:
    """Decode the same batch again and again; gives what was spent."""
    raw = wire.raw_batch([wire.insert(row) for row in decode_rows()])
    decoder = BatchDecoder()
    decoder.decode_bytes(wire.raw_batch([], [wire.relation([held for held, _ in decode.MIXED])]))
    decoder.decode_bytes(raw)
    began = Spent.now()
    for _ in range(loops):
        decoder.decode_bytes(raw)
    return Spent.now().since(began)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--times", type=int, default=1, help="run so often")
    parser.add_argument("--base", action="store_true", help="and what is measured by")
    kinds = parser.add_subparsers(dest="kind", required=True)
    landing = kinds.add_parser("replay")
    landing.add_argument("recording")
    landing.add_argument("--root", required=True)
    landing.add_argument("--decoders", type=int, default=1)
    kinds.add_parser("decode").add_argument("--loops", type=int, required=True)
    args = parser.parse_args()
    work = checkbase.make_work() if args.base else None
    found = []
    for _ in range(args.times):
        base = [] if work is None else [checkbase.seconds_per_row(work)]
        if args.kind == "decode":
            spent = run_decode(args.loops)
        else:
            spent = run_replay(args.recording, args.root, args.decoders)
        if work is not None:
            base.append(checkbase.seconds_per_row(work))
        found.append({**spent._asdict(), "base": base})
    print(json.dumps(found), flush=True)
    os._exit(0)  # what Python does at its end is not measured


if __name__ == "__main__":
    main()
