"""Takes the guards out of the code one by one, and sees that a test misses each.

Works in a copy of the tree; the tests named beside each mutation in `guards.py` are run there
until the first failure; without a mutation they must pass. A mutation whose text is not found
exactly once is an error: the list is wrong then. Compiled modules are not mutated.

    make test-mutations ARGS="--only TEXT --jobs N"

Ends with 0 when every mutation is caught, or is one that `guards.py` says survives and why.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from mutations.guards import GUARDS, Guard

ROOT: Final = Path(__file__).resolve().parents[2]
_COPIED: Final = (
    "gaussdecode",
    "tests",
    "config",
    "systemd",
    "docs",
    "pyproject.toml",
    "README.md",
)
_SECONDS: Final = 600  # a mutation that makes a test hang is caught by it


def copy_tree(target: Path) -> None:
    """Make a tree in which tests run as they do in the checkout."""
    for name in _COPIED:
        source = ROOT / name
        if source.is_dir():
            ignore = shutil.ignore_patterns("__pycache__", "*.c", ".hypothesis")
            shutil.copytree(source, target / name, ignore=ignore)
        else:
            shutil.copy2(source, target / name)
    (target / ".venv").symlink_to(ROOT / ".venv")


def mutate(tree: Path, guard: Guard) -> None:
    """Write the mutation.

    Raises:
        SystemExit: its text is not in the file exactly once.
    """
    path = tree / "gaussdecode" / guard.file
    text = path.read_text()
    if text.count(guard.old) != 1:
        raise SystemExit(f"{guard.file}: {text.count(guard.old)} times\n{guard.old}")
    path.write_text(text.replace(guard.old, guard.new))


def fails(tests: Sequence[str], guard: Guard | None) -> bool:
    """Run tests in a copy of the tree, with one mutation or none; true when one fails."""
    with tempfile.TemporaryDirectory(prefix="gaussdecode-mutation-") as name:
        tree = Path(name)
        copy_tree(tree)
        if guard is not None:
            mutate(tree, guard)
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:randomly", *tests]
        environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(
                command, cwd=tree, env=environment, capture_output=True, text=True,
                check=False, timeout=_SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return True
        if done.returncode not in {0, 1}:
            raise SystemExit(f"{tests}: pytest ended with {done.returncode}\n{done.stdout}")
        return done.returncode == 1


def report(guard: Guard) -> bool:
    """Try one, say what became of it; true when it is as the list says."""
    began = time.monotonic()
    caught = fails(guard.tests, guard)
    word = "caught" if caught else "SURVIVED"
    first = guard.old.strip().splitlines()[0]
    expected = f" (expected: {guard.survives})" if guard.survives else ""
    print(
        f"{word:8} {time.monotonic() - began:5.0f} s  {guard.file}: {first}{expected}", flush=True
    )
    return caught != bool(guard.survives)


def main(arguments: Sequence[str] | None = None) -> int:
    """Try them all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="those with this in their file or text")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args(arguments)
    chosen = [guard for guard in GUARDS if args.only in guard.file or args.only in guard.old]
    with ThreadPoolExecutor(args.jobs) as pool:
        sound = {guard.tests: pool.submit(fails, guard.tests, None) for guard in chosen}
        for tests, run in sound.items():
            if run.result():
                raise SystemExit(f"these fail without a mutation: {' '.join(tests)}")
        good = list(pool.map(report, chosen))
    print(f"{sum(good)} of {len(good)} are as the list says")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
