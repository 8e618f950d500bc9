"""How fast does a mirror take what has landed?

A landing of some entries is shipped to a store by the daemon's own shipper, and the same files are
copied there without anything else: by ``cp`` to a directory, or by the client library's plain put,
one file after the other, to the same server. All in turns, in the same run. `ratio` is the
bytes per second of the shipper by those of the base: what conditions, order, entries and the
question for the entry before cost.

    python bench/ship.py --entries 40 --file-bytes 8000000 --out build/bench/ship.json

Stores: a directory, and S3Proxy on this machine, which shares its cores with the client; --url with
--endpoint asks another one, with the credentials of the environment.
"""

import argparse
import dataclasses
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import obstore
from kit.landrun import IDENTITY, START
from kit.s3 import ENVIRONMENT, S3
from obstore.store import from_url

from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.entry_steps import Draft, HiddenFile
from gaussdecode.land.files import Files
from gaussdecode.land.mirror.shipper import Shipper
from gaussdecode.model.landing import EntryKind, Position, SourcePosition
from gaussdecode.objects.cloud import CloudStore
from gaussdecode.settings.landing_sections import MirrorConfig


def land(root: Path, entries: int, files: int, size: int) -> None:
    """Make a landing of entries with files of random bytes: nobody looks into them here."""
    root.mkdir()
    log = CommitLog.open(Files(root), IDENTITY, now=lambda: START, writer="bench")
    log.commit(Draft(kind=EntryKind.GENESIS, position=SourcePosition(0, 1, 1)))
    for n in range(1, entries):
        drafted = []
        for table in (f"public.t{number}" for number in range(files)):
            directory = f"data/{table}/gd_date={START.date()}"
            log.disk.ensure_directory(directory)
            path = log.disk.unfinished(directory, n, "parquet")
            log.disk.write_file(path, os.urandom(size))
            (root / f"schemas/{table}").mkdir(exist_ok=True)
            (root / f"schemas/{table}/0000000000000000.json").write_bytes(b"{}")
            at = Position(n + 1, 0)
            checksum = log.disk.checksum(path)
            drafted.append(
                HiddenFile(path, table, 1, size, at, at, "0" * 16, {"I": 1}, False, False, checksum)
            )
        position = SourcePosition(0, 1, n + 1)
        log.commit(Draft(kind=EntryKind.SNAPSHOT, position=position, files=tuple(drafted)))
    log.close()


def ship(root: Path, config: MirrorConfig) -> None:
    """Ship it all, as the daemon does."""
    log = CommitLog.open(Files(root), IDENTITY, writer="ship")
    shipper = Shipper(log, CloudStore(config))
    shipper.prepare()
    while (entry := shipper.ship()) is not None:
        shipper.follow(entry)
    log.close()


def copy(root: Path, target: Path) -> None:
    """Copy the same to a directory, and have it on the disk: the client library does not wait."""
    subprocess.run(["cp", "-r", str(root / "data"), str(target)], check=True)


def put(root: Path, config: MirrorConfig) -> None:
    """Put the same files one after the other, and nothing else."""
    store = from_url(
        config.url,
        endpoint=config.endpoint,
        region=config.region,
        client_options={"allow_http": config.allow_http},
    )
    for path in sorted((root / "data").rglob("*.parquet")):
        obstore.put(store, str(path.relative_to(root)), path, use_multipart=False)


@dataclasses.dataclass(frozen=True)
class Way:
    """One way to bring the files somewhere."""

    name: str
    base: str | None
    run: Callable[[int], None]


def measure(ways: Sequence[Way], runs: int, total: int) -> dict[str, object]:
    """Run all ways in turns; megabytes per second, and how they compare."""
    rates: dict[str, list[float]] = {way.name: [] for way in ways}
    for number in range(runs):
        for way in ways:
            began = time.perf_counter()
            way.run(number)
            rates[way.name].append(total / (time.perf_counter() - began) / 1e6)
    result: dict[str, object] = {
        name: {"mb_per_second": statistics.median(of), "range": [min(of), max(of)]}
        for name, of in rates.items()
    }
    for way in ways:
        if way.base is not None:
            ratios = [a / b for a, b in zip(rates[way.name], rates[way.base], strict=True)]
            result[f"{way.name} / {way.base}"] = {
                "ratio": statistics.median(ratios),
                "range": [min(ratios), max(ratios)],
            }
    return result


def main() -> int:
    """Measure, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=21)
    parser.add_argument("--files", type=int, default=4, help="per entry")
    parser.add_argument("--file-bytes", type=int, default=4_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--url", help="of another S3 store, with --endpoint and --region")
    parser.add_argument("--endpoint", default="")
    parser.add_argument("--region", default="us-east-1")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        root = directory / "root"
        land(root, args.entries, args.files, args.file_bytes)
        total = (args.entries - 1) * args.files * args.file_bytes

        def fresh(where: str, number: int) -> Path:
            for old in directory.glob(f"{where}-*"):
                shutil.rmtree(old)
            (root / "mirror.json").unlink(missing_ok=True)
            return directory / f"{where}-{number}"

        def to_directory(number: int) -> None:
            ship(root, MirrorConfig(url=f"file://{fresh('mirror', number)}"))

        def by_cp(number: int) -> None:
            copy(root, fresh("copy", number))

        if args.url is None:
            os.environ.update(ENVIRONMENT)
        (directory / "s3").mkdir()
        server = S3(directory / "s3")
        if args.url is None:
            server.start()

        def config(number: int, way: str) -> MirrorConfig:
            (root / "mirror.json").unlink(missing_ok=True)
            if args.url is None:
                return server.settings(server.bucket())
            return MirrorConfig(
                url=f"{args.url}/{way}-{os.getpid()}-{number}",
                endpoint=args.endpoint,
                region=args.region,
                allow_http=args.endpoint.startswith("http:"),
            )

        ways = (
            Way("cp", None, by_cp),
            Way("ship to a directory", "cp", to_directory),
            Way("put to S3", None, lambda number: put(root, config(number, "put"))),
            Way("ship to S3", "put to S3", lambda number: ship(root, config(number, "ship"))),
        )
        try:
            result = {
                "entries": args.entries,
                "files": args.files,
                "file_bytes": args.file_bytes,
                "runs": args.runs,
                **measure(ways, args.runs, total),
            }
        finally:
            server.stop()
    text = json.dumps(result, indent=2)
    print(text)
    if args.out is not None:
        args.out.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
