"""Load existing rows straight into a target: ``gaussdecode spark snapshot``."""

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, cast

from gaussdecode.console.arguments import count, place, seconds, size
from gaussdecode.errors import EX_OK, ConfigError
from gaussdecode.land.names import LAYOUT
from gaussdecode.model.title import split_title, table_title
from gaussdecode.model.words import counted
from gaussdecode.operations.spark.arguments import (
    engine_arguments,
    engine_of,
    flag,
    new_target_argument,
    repeated,
    tables_argument,
)
from gaussdecode.settings.sections import Config

if TYPE_CHECKING:
    from gaussdecode.snapshot.initial import Summary
    from gaussdecode.spark.log.place import Place
    from gaussdecode.spark.merge.engine import Engine

DESCRIPTION = (
    "Load the rows that tables hold now straight into a target: executors read ranges of the tables "
    "over connections of their own, at a position of the stream that is known, and spark apply goes "
    "on from there. The daemon streams meanwhile, best with snapshot.mode: none from the beginning. "
    "What is interrupted goes on where it was when the command is run again."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = DESCRIPTION
    parser.add_argument("config", type=Path, help="configuration file of the daemon's slot")
    new_target_argument(parser)
    parser.add_argument(
        "--landing",
        type=place,
        metavar="PLACE",
        help="directory or URL of the daemon's landing, where this is not its host; the configured "
        "root, or its mirror where that is not here",
    )
    tables_argument(parser, "schema.table,... instead of all that the target lacks")
    parser.add_argument(
        "--format",
        metavar="FORMAT",
        choices=("delta", "iceberg"),
        help="delta or iceberg; see spark apply",
    )
    parser.add_argument("--catalog", metavar="NAME", help="names in a catalog; see spark apply")
    repeated(parser, "--mask", "TABLE=COLUMN:RULE,...", "mask values; see spark apply")
    parser.add_argument("--mask-key", type=Path, metavar="FILE", help="key of hash")
    parser.add_argument(
        "--buckets", type=count, metavar="N", help="buckets of new tables; default: by size"
    )
    parser.add_argument(
        "--connections",
        type=count,
        metavar="N",
        help="number of parallel connections; default: snapshot.workers of the configuration",
    )
    parser.add_argument(
        "--rate",
        type=size,
        metavar="SIZE",
        help="bytes per second over all connections; default: snapshot.rate-limit of the configuration",
    )
    parser.add_argument(
        "--wait", type=seconds, default=60.0, metavar="SECONDS",
        help="longest wait for the daemon to land changes between two snapshots",
    )  # fmt: skip
    flag(parser, "--json", "print one object")
    engine_arguments(parser)


def execute(args: argparse.Namespace) -> int:
    """Load the tables that the target lacks.

    Raises:
        ConfigError: this source cannot be read this way, or the options are not possible.
    """
    with engine_of(args) as engine:
        return _load(args, args.config, engine)


def _load(args: argparse.Namespace, config: Config, engine: "Engine") -> int:
    from gaussdecode.snapshot.initial import InitialLoad, Wish
    from gaussdecode.spark.apply import Options, open_target
    from gaussdecode.spark.log.landing import Landing
    from gaussdecode.spark.log.masks import read_key, read_masks

    key = b"" if args.mask_key is None else read_key(args.mask_key)
    options = Options(
        buckets=args.buckets,
        format=args.format,
        catalog=args.catalog,
        masks=read_masks(args.mask, key),
        mask_key=key,
    )
    wish = Wish(
        tables=_titles(args.tables),
        connections=args.connections or config.snapshot.workers,
        rate=args.rate or config.snapshot.rate_limit,
        wait=args.wait,
        options=options,
    )

    def progress(text: str) -> None:
        if not args.json:
            print(f"  {text}", flush=True)

    begun = time.monotonic()
    root = _landing(args, config)
    store = open_target(engine, args.target, Landing(root), options)
    with store.locked():
        summary = InitialLoad(engine, config, root, store, wish, progress).run()
    _report(args, root, summary, time.monotonic() - begun)
    return EX_OK


def check_source(config: Config) -> None:
    """Refuse a source whose rows executors cannot read.

    Raises:
        ConfigError: executors cannot read it, or the stream would not tell the rows' position.
    """
    if config.snapshot_refusal is not None:
        raise ConfigError(config.snapshot_refusal)
    if config.lands_by_csn:
        raise ConfigError(
            "spark load finds a position by LSN; in a landing by CSN the daemon lands the existing rows: "
            "snapshot.mode: initial"
        )
    if config.is_several:
        raise ConfigError(
            "spark load reads one source; of several the daemon lands the existing rows: snapshot.mode: initial"
        )


def _landing(args: argparse.Namespace, config: Config) -> "Place":
    """Place of the landing: the daemon's directory, or the mirror on another host."""
    from gaussdecode.spark.log.place import mirror_place

    if args.landing is not None:
        return cast("Place", args.landing)
    root, mirror = config.landing.root, config.mirror
    is_here = mirror.local_retention is None and (root / LAYOUT).exists()
    return root if is_here or not mirror.is_on else mirror_place(mirror)


def _titles(text: str | None) -> frozenset[str] | None:
    if text is None:
        return None
    try:
        names = [name.strip() for name in text.split(",") if name.strip()]
        return frozenset(table_title(*split_title(name)) for name in names)
    except ValueError as error:
        raise ConfigError(f"--tables: {error}") from None


def _report(args: argparse.Namespace, root: "Place", summary: "Summary", took: float) -> None:
    if args.json:
        print(json.dumps({**dataclasses.asdict(summary), "seconds": round(took, 3)}), flush=True)
        return
    if not summary.tables:
        print(f"{args.target}: nothing to load: it already has all requested tables")
        return
    print(
        f"{args.target}: loaded {counted(summary.tables, 'table')}, {counted(summary.rows, 'row')}, "
        f"{counted(summary.ranges, 'range')}, {took:.1f} s; they show when changes have been applied: "
        f"gaussdecode spark apply {root} {args.target}"
    )
