"""Takes the guards out of the code one by one, and sees that each removal makes a test fail.

Works in a copy of the tree; the tests named beside each mutation in `guards.py` are run there
until the first failure, which is said; without a mutation they must all pass. A mutation whose
text is not found exactly once is an error: the list is wrong then. Nor is one caught by tests
that cannot be collected, or do not end. Compiled modules are not mutated.

    make test-mutations ARGS="--only TEXT --jobs N --list"

Ends with 0 when every mutation is caught, or is one that `guards.py` says survives and why.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
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
_SECONDS: Final = 1200  # of one run of tests; arbitrary
_SECONDS_OF_A_TEST: Final = 240
_FIRST_FAILURE: Final = re.compile(r"^(?:FAILED|ERROR) tests/(.*)$", re.MULTILINE)


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


def mutated(guard: Guard) -> str:
    """Text of the file with the mutation.

    Raises:
        SystemExit: what it takes out is not in the file exactly once.
    """
    text = (ROOT / "gaussdecode" / guard.file).read_text()
    if text.count(guard.old) != 1:
        raise SystemExit(f"{guard.file}: {text.count(guard.old)} times\n{guard.old}")
    return text.replace(guard.old, guard.new)


def first_failure(tests: Sequence[str], guard: Guard | None) -> str:
    """Run tests in a copy of the tree, with one mutation or none; gives which failed, and how.

    Raises:
        SystemExit: they cannot be run, or do not end.
    """
    with tempfile.TemporaryDirectory(prefix="gaussdecode-mutation-") as name:
        tree = Path(name)
        copy_tree(tree)
        if guard is not None:
            (tree / "gaussdecode" / guard.file).write_text(mutated(guard))
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:randomly", *tests]
        command += [f"--timeout={_SECONDS_OF_A_TEST}"]
        environment = {
            **os.environ,
            "PYTHONPATH": str(tree),
            "PYTHONDONTWRITEBYTECODE": "1",
            "COLUMNS": "200",
        }
        try:
            done = subprocess.run(
                command, cwd=tree, env=environment, capture_output=True, text=True,
                check=False, timeout=_SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise SystemExit(f"{' '.join(tests)}: no end within {_SECONDS} s") from error
        if done.returncode not in {0, 1}:
            raise SystemExit(f"{tests}: pytest ended with {done.returncode}\n{done.stdout}")
        found = _FIRST_FAILURE.search(done.stdout)
        assert bool(found) == bool(done.returncode), done.stdout
        return found[1] if found else ""


def report(guard: Guard) -> bool:
    """Try one, say what became of it; true when it is as the list says."""
    began = time.monotonic()
    try:
        caught = first_failure(guard.tests, guard)
        word = "caught" if caught else "SURVIVED"
    except SystemExit as error:
        caught, word = str(error), "BROKEN"
    seconds = time.monotonic() - began
    first = guard.old.strip().splitlines()[0]
    why = caught or guard.survives or "no test misses it"
    print(f"{word:8} {seconds:5.0f} s  {guard.file}: {first}\n{' ' * 18}{why}", flush=True)
    return word == ("SURVIVED" if guard.survives else "caught")


def main(arguments: Sequence[str] | None = None) -> int:
    """Try them all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="those with this in their file or text")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--list", action="store_true", help="only see that all of them are there")
    args = parser.parse_args(arguments)
    chosen = [guard for guard in GUARDS if args.only in guard.file or args.only in guard.old]
    for guard in chosen:
        mutated(guard)
    if args.list:
        counts = Counter(guard.file for guard in chosen)
        print(*(f"{count:4} {file}" for file, count in sorted(counts.items())), sep="\n")
        return 0
    failure = first_failure(sorted({test for guard in chosen for test in guard.tests}), None)
    if failure:
        raise SystemExit(f"fails without a mutation: {failure}")
    with ThreadPoolExecutor(args.jobs) as pool:
        good = list(pool.map(report, chosen))
    print(f"{sum(good)} of {len(good)} are as the list says")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
