"""Check that a landing's files match its commit log.

Reads every entry, file and row position, and changes nothing; it may run beside the daemon. Exits with
0 when everything matches, and with 74 after naming every mismatch. With --ship-missing it first ships
again the objects that the mirror has lost and the landing on this host still has.

Examples:
  gaussdecode verify /var/lib/gaussdecode/orders
  gaussdecode verify --json /var/lib/gaussdecode/orders | jq .rows
  gaussdecode verify --mirror /etc/gaussdecode/orders.yaml      # the objects of landing.mirror
  gaussdecode verify --mirror --ship-missing /etc/gaussdecode/orders.yaml
"""

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from gaussdecode.errors import EX_OK, ConfigError, LandingError
from gaussdecode.land.disk import Disk
from gaussdecode.land.mirror.lost import lost_end, newest_shipped, ship_missing
from gaussdecode.land.mirror.putting import SHIP_MISSING
from gaussdecode.land.mirror.reading import MirrorFiles
from gaussdecode.land.names import LAYOUT
from gaussdecode.land.verify import Report, verify, verify_files
from gaussdecode.model.lsn import Lsn
from gaussdecode.model.words import counted
from gaussdecode.objects.store import open_store
from gaussdecode.operations.landing_files import opened
from gaussdecode.operations.owner import load_as_owner, work_as_owner_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("root", type=Path, help="directory of the landing, or with --mirror a file")
    parser.add_argument(
        "--mirror", action="store_true", help="check the mirror that a configuration names"
    )
    parser.add_argument(
        "--ship-missing",
        action="store_true",
        help="with --mirror: first upload objects that the mirror lacks and this host has; a daemon may run",
    )
    parser.add_argument("--json", action="store_true", help="print one object")


def execute(args: argparse.Namespace) -> int:
    """Verify, print a summary, and name mismatches."""
    if args.mirror:
        report = _verify_mirror(args.root, is_shipping=args.ship_missing)
        return _execute(report, str(args.root), is_json=args.json)
    if args.ship_missing:
        raise ConfigError("--ship-missing needs --mirror and a configuration file")
    work_as_owner_of(args.root)
    if not args.root.is_dir():
        why = "it is a file" if args.root.exists() else "no such directory"
        raise ConfigError(f"{args.root}: {why}; give the directory that landing.root names")
    return _execute(verify(args.root), str(args.root), is_json=args.json)


def _verify_mirror(path: Path, *, is_shipping: bool) -> Report:
    """Check the mirror of a configuration, over the network."""
    config = load_as_owner(path)
    if not config.mirror.is_on:
        raise ConfigError(f"{path.name}: landing.mirror.url: missing; there is no mirror to check")
    store = open_store(config.mirror)
    with _local_disk(config.landing.root) as disk:
        if disk is None and is_shipping:
            raise ConfigError(
                f"{path.name}: landing.root: {config.landing.root} holds no landing; run this on the host that has "
                "it"
            )
        shipped = newest_shipped(disk, store)
        if disk is not None and is_shipping:
            ship_missing(disk, store, _say_shipped)
        elif disk is None:
            text = f"{config.landing.root} holds no landing: of the newest entries, {store.url} alone tells"
            print(text, file=sys.stderr)
    report = verify_files(MirrorFiles(store))
    lost = lost_end(shipped, store)
    if lost is not None:
        report.add(f"{lost}. Ship again what the host of the landing has: {SHIP_MISSING}")
    return report


@contextlib.contextmanager
def _local_disk(root: Path) -> Iterator[Disk | None]:
    """The disk of the landing on this host; None without a landing."""
    if not (root / LAYOUT).is_file():
        yield None
        return
    with opened(root) as disk:
        yield disk


def _say_shipped(path: str) -> None:
    print(f"shipped again: {path}", file=sys.stderr)


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
