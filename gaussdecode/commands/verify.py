"""Check that a landing holds what its commit log says, all of it.

Reads every entry, file and row position, and changes nothing; it may run beside the daemon.
Ends with 0 when all is well, and with 74 after naming everything that is not.

Examples:
  gaussdecode verify /var/lib/gaussdecode/orders
  gaussdecode verify --json /var/lib/gaussdecode/orders | jq .rows
"""

import argparse
import json
from pathlib import Path

from gaussdecode.errors import EX_OK, LandingError
from gaussdecode.land.verify import Report, verify
from gaussdecode.model.lsn import Lsn


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("root", type=Path, help="directory of the landing")
    parser.add_argument("--json", action="store_true", help="print one object")


def execute(args: argparse.Namespace) -> int:
    """Verify, print what was seen, and complain about what is wrong."""
    report = verify(args.root)
    if args.json:
        print(json.dumps(_record(report)))
    else:
        for name, value in _record(report).items():
            if name not in {"findings", "is_clean"}:
                print(f"{name:<10} {_spell(value)}")
    if report.findings:
        more = "\n(and more)" if report.is_cut else ""
        found = "\n".join(report.findings)
        raise LandingError(f"{args.root}: {len(report.findings)} findings\n{found}{more}")
    if not args.json:
        print("all is well")
    return EX_OK


def _record(report: Report) -> dict[str, object]:
    return {
        "entries": report.entries,
        "first_n": report.first_n,
        "last_n": report.last_n,
        "floor": report.floor,
        "tables": report.tables,
        "files": report.files,
        "rows": report.rows,
        "bytes": report.bytes,
        "ops": dict(sorted(report.ops.items())),
        "framed": dict(sorted(report.framed.items())),
        "left_out": {
            reason: sum(counts.values()) for reason, counts in sorted(report.left_out.items())
        },
        "positions": {name: str(Lsn(at.lsn)) for name, at in sorted(report.positions.items())},
        "is_clean": report.is_clean,
        "findings": report.findings,
    }


def _spell(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{key}={item}" for key, item in value.items()) or "-"
    return "-" if value is None else str(value)
