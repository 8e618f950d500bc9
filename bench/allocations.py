"""How often do a command and its children ask for memory?

Calls of malloc, calloc, realloc, their aligned kin and mmap, by a library that is preloaded
(`allocations.c`, compiled to ``build/bench`` when it has changed). Arrow's buffers go through
malloc while calls are counted. Small objects of Python do not: those of threads that look at
the clock would hide what rows cost.
"""

import os
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).resolve().parent
_SOURCE: Final = _HERE / "allocations.c"
_BUILD: Final = _HERE.parent / "build" / "bench"


def build(directory: Path = _BUILD) -> Path:
    """Compile the library if it has changed; give it."""
    target = directory / "allocations.so"
    if target.exists() and target.stat().st_mtime > _SOURCE.stat().st_mtime:
        return target
    directory.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-O2", "-shared", "-fPIC", "-o", str(target), str(_SOURCE)]
    subprocess.run(command, check=True)
    return target


def environment(library: Path, counts: Path) -> dict[str, str]:
    """Variables for a process whose calls are counted to files in `counts`."""
    return {
        "LD_PRELOAD": str(library),
        "GAUSSDECODE_BENCH_COUNTS": str(counts),
        "PYTHONHASHSEED": "0",  # or dictionaries grow otherwise each time
    }


def total(counts: Path) -> int:
    """Calls of all processes that wrote there, running or ended."""
    return sum(struct.unpack("=Q", path.read_bytes())[0] for path in counts.iterdir())


def run(command: Sequence[str], library: Path) -> str:
    """Run a command, and count its calls; gives its standard output."""
    with tempfile.TemporaryDirectory() as name:
        variables = {**os.environ, **environment(library, Path(name))}
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
        return done.stdout
