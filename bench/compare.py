"""What changed between two results of the same bench?

Every number that both files hold, old, new and new over old; with `--least` only those that
differ by more than a part. Numbers of different machines are refused unless asked for.

    python bench/compare.py OLD NEW [--least 0.15] [--any-machine]
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

_MACHINE: Final = ("cpu", "cores", "memory_bytes")


def numbers(record: Any, path: str = "") -> Iterator[tuple[str, float]]:  # Any: JSON
    """Every number of a result with its path; the machine's left out."""
    if isinstance(record, dict):
        for key, value in record.items():
            if key != "machine":
                yield from numbers(value, f"{path}.{key}" if path else key)
    elif isinstance(record, list):
        for index, value in enumerate(record):
            yield from numbers(value, f"{path}[{index}]")
    elif isinstance(record, int | float) and not isinstance(record, bool):
        yield path, float(record)


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--least", type=float, default=0.0, metavar="PART")
    parser.add_argument("--any-machine", action="store_true")
    args = parser.parse_args()
    old, new = (json.loads(path.read_text()) for path in (args.old, args.new))
    if old["bench"] != new["bench"]:
        sys.exit(f"{args.old} is of bench {old['bench']}, {args.new} of {new['bench']}")
    if old.get("shape") != new.get("shape"):
        sys.exit(f"{args.old} is of shape {old.get('shape')}, {args.new} of {new.get('shape')}")
    differing = [key for key in _MACHINE if old["machine"][key] != new["machine"][key]]
    if differing and not args.any_machine:
        sys.exit(f"other machines ({', '.join(differing)}): say --any-machine to compare anyway")
    before = dict(numbers(old))
    for path, value in numbers(new):
        if path not in before or not before[path]:
            continue
        ratio = value / before[path]
        if abs(ratio - 1) >= args.least:
            print(f"{path:60} {before[path]:>16,.3f} {value:>16,.3f}  x{ratio:.2f}")


if __name__ == "__main__":
    main()
