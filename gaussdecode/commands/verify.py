"""Check that a landing holds what its commit log says, all of it.

Reads every entry, file and row position, and changes nothing; it may run beside the daemon.
Ends with 0 when all is well, and with 74 after naming everything that is not.

Examples:
  gaussdecode verify /var/lib/gaussdecode/orders
  gaussdecode verify --json /var/lib/gaussdecode/orders | jq .rows
  gaussdecode verify --mirror /etc/gaussdecode/orders.yaml      # what landing.mirror has
"""

import argparse
import json
from pathlib import Path

from gaussdecode.commands._owner import load_as_owner, work_as_owner_of
from gaussdecode.errors import EX_OK, ConfigError, LandingError
from gaussdecode.land.mirror.reading import MirrorFiles
from gaussdecode.land.verify import Report, verify, verify_files
from gaussdecode.model.lsn import Lsn
from gaussdecode.model.words import counted
from gaussdecode.objects.store import open_store


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("root", type=Path, help="directory of the landing, or with --mirror a file")
    parser.add_argument(
        "--mirror", action="store_true", help="check the mirror that a configuration names"
    )
    parser.add_argument("--json", action="store_true", help="print one object")


def execute(args: argparse.Namespace) -> int:
    """Verify, print what was seen, and complain about what is wrong."""
    if args.mirror:
        return _execute(_verify_mirror(args.root), str(args.root), is_json=args.json)
    work_as_owner_of(args.root)
    if not args.root.is_dir():
        why = "it is a file" if args.root.exists() else "no such directory"
        raise ConfigError(f"{args.root}: {why}; give the directory that landing.root names")
    return _execute(verify(args.root), str(args.root), is_json=args.json)


def _verify_mirror(path: Path) -> Report:
    """Check the mirror of a configuration, over the network."""
    config = load_as_owner(path)
    if not config.mirror.is_on:
        raise ConfigError(f"{path.name}: landing.mirror.url: missing; there is no mirror to check")
    return verify_files(MirrorFiles(open_store(config.mirror)))


def _execute(report: Report, where: str, *, is_json: bool) -> int:
    if is_json:
        print(json.dumps(_record(report)))
    else:
        for name, value in _record(report).items():
            if name not in {"findings", "is_clean"}:
                print(f"{name:<10} {_spell(value)}")
    if report.findings:
        more = "\n(and more)" if report.is_cut else ""
        found = "\n".join(report.findings)
        raise LandingError(f"{where}: {counted(len(report.findings), 'finding')}\n{found}{more}")
    if not is_json:
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
