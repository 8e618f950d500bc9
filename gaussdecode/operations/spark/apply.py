"""Apply a landing's changes to a target: ``gaussdecode spark apply``."""

import argparse
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gaussdecode.console.arguments import count, seconds
from gaussdecode.console.signals import until_signal
from gaussdecode.console.spark_session import EndedBy
from gaussdecode.errors import EX_CONFIG, EX_OK, GaussDecodeError, TargetBusyError
from gaussdecode.operations.spark.apply_report import gap_text, report, warn
from gaussdecode.operations.spark.arguments import (
    days,
    engine_arguments,
    engine_of,
    flag,
    landing_argument,
    names,
    new_target_argument,
    point_arguments,
    point_of,
    repeated,
    tables_argument,
)

if TYPE_CHECKING:
    from gaussdecode.spark.apply import Options
    from gaussdecode.spark.merge.engine import Engine

_LONGEST_WAIT = 300.0  # seconds between tries while a store is away; arbitrary


_ACCEPTS: Final = {
    "--accept-gaps": "continue after gap entries, whose changes are lost; the target records this",
    "--accept-suspects": "continue after suspect entries: tables that they name may have wrong "
    "rows from there on",
    "--accept-hidden-truncates": "apply a stream that has no TRUNCATE and no DDL (GaussDB's "
    "parallel decoding)",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    landing_argument(parser)
    new_target_argument(parser)
    tables_argument(parser)
    _form_arguments(parser)
    for name, text in _ACCEPTS.items():
        flag(parser, name, text)
    parser.add_argument(
        "--tests",
        type=Path,
        metavar="FILE",
        help="YAML file of data tests for changed rows, and the action for rows that fail",
    )
    repeated(
        parser,
        "--on-ddl",
        "KIND=ACTION,...",
        "what DDL does: ACTION is apply, stop or ignore; KIND is add-column, drop-column, rename, "
        "retype, comment, rename-table or drop-table; one ACTION alone is for all kinds, but apply not for rename-table",
    )
    point_arguments(parser, "to-")
    flag(parser, "--follow", "repeat until a signal stops it")
    parser.add_argument("--interval", type=seconds, default=10.0, metavar="SECONDS")
    parser.add_argument(
        "--keep-days", type=days, default=7.0, metavar="DAYS",
        help="with --follow: remove versions older than this; default 7",
    )  # fmt: skip
    parser.add_argument("--metrics-file", type=Path, metavar="FILE", help="for Prometheus")
    flag(parser, "--json", "print summaries as JSON objects")
    engine_arguments(parser)


def _form_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what tables are made with."""
    parser.add_argument(
        "--format",
        metavar="FORMAT",
        choices=("delta", "iceberg"),
        help="delta, or iceberg: an Iceberg catalog has the same tables too",
    )
    parser.add_argument(
        "--catalog",
        metavar="NAME",
        help="names of the tables: CATALOG, CATALOG.NAMESPACE or a pattern with {schema} and "
        "{table}; for delta a catalog of the Spark session, which needs Delta's jar; for iceberg "
        "one of pyiceberg's configuration",
    )
    flag(
        parser,
        "--hide-technical-columns",
        "iceberg, new target: current tables show no columns that begin with gd_",
    )
    flag(
        parser,
        "--deletion-vectors",
        "delta: small applies write less; readers must support deletion vectors; from now on",
    )
    repeated(parser, "--partition-by", "TABLE=COLUMN,...", "new tables: partition columns")
    repeated(
        parser,
        "--mask",
        "TABLE=COLUMN:RULE,...",
        "new tables: mask values; RULE is null, hash or keep(LETTERS)",
    )
    parser.add_argument(
        "--mask-key",
        type=Path,
        metavar="FILE",
        help="file with the key for hash; give the same key to each apply",
    )
    repeated(
        parser,
        "--cluster-by",
        "TABLE=COLUMN,...",
        "new tables: columns that order the rows of a file",
    )
    flag(parser, "--history", "keep earlier versions of rows")
    parser.add_argument(
        "--changelog",
        nargs="?",
        const="gd_commit_date",
        metavar="COLUMN",
        help="keep the changes too, partitioned by COLUMN; default: the date of the commit",
    )
    parser.add_argument(
        "--buckets", type=count, metavar="N", help="buckets of new tables; default: by size"
    )


def execute(args: argparse.Namespace) -> int:
    """Apply once, or until a signal comes."""
    from gaussdecode.spark.apply import Options
    from gaussdecode.spark.checks.data_tests import load_tests
    from gaussdecode.spark.log.masks import read_key, read_masks
    from gaussdecode.spark.merge.on_ddl import read_on_ddl
    from gaussdecode.spark.target.layout import read_layouts

    key = b"" if args.mask_key is None else read_key(args.mask_key)
    options = Options(
        tables=names(args.tables),
        history=args.history,
        vectors=args.deletion_vectors,
        changelog=args.changelog,
        buckets=args.buckets,
        accept_gaps=args.accept_gaps,
        accept_suspects=args.accept_suspects,
        accept_hidden_truncates=args.accept_hidden_truncates,
        format=args.format,
        catalog=args.catalog,
        hides=args.hide_technical_columns,
        masks=read_masks(args.mask, key),
        mask_key=key,
        tests=None if args.tests is None else load_tests(args.tests),
        layouts=read_layouts(args.partition_by, args.cluster_by),
        on_ddl=read_on_ddl(args.on_ddl),
    )
    with until_signal() as stop, EndedBy(stop), engine_of(args) as engine:
        return _apply_until(stop, engine, args, options)
    return EX_OK


def _apply_until(
    stop: threading.Event, engine: "Engine", args: argparse.Namespace, options: "Options"
) -> int:
    """Apply once, or repeatedly until a signal comes."""
    from gaussdecode.spark.apply import apply_with
    from gaussdecode.spark.checks.data_tests import Failed
    from gaussdecode.spark.maintain.follow import Maintenance
    from gaussdecode.spark.maintain.upkeep import DAY

    def progress(text: str) -> None:
        if not args.json:
            print(f"  {text}", flush=True)

    maintenance = Maintenance(engine, args.target, keep_seconds=args.keep_days * DAY, say=progress)
    found: dict[tuple[str, str], Failed] = {}
    failures = 0
    while True:
        begun = time.monotonic()
        try:
            summary = apply_with(
                engine, args.root, args.target, options, to=point_of(args), progress=progress
            )
        except GaussDecodeError as error:  # a store or a catalog that is away, another writer
            if not args.follow or not error.retryable:
                raise
            wait = min(args.interval * 2**failures, max(args.interval, _LONGEST_WAIT))
            failures += not isinstance(error, TargetBusyError)
            say = progress if isinstance(error, TargetBusyError) else warn
            say(f"put off for {wait:g} s: {error}")
            if stop.wait(wait):
                return EX_OK
            continue
        failures = 0
        found |= {(of.table, of.test): of for of in summary.tests}
        report(args, summary, time.monotonic() - begun, found.values())
        if summary.stopped_at_gap is not None:
            print(gap_text(summary), file=sys.stderr)
            return EX_CONFIG
        if summary.stopped and not args.follow:
            return EX_CONFIG
        if args.follow:
            maintenance.keep(is_changed=summary.tables > 0)
        if not args.follow or stop.wait(args.interval):
            return EX_OK
