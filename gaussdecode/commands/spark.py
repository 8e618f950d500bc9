"""Build tables from landed changes with Spark: current state, history and changelog.

`apply` applies the changes of a landing to a target directory, up to the end of the log; run it again
for new changes, or use --follow. `query` runs SQL on the target, also on earlier states.

Examples:
  gaussdecode spark apply /var/lib/gaussdecode/orders /srv/orders --history
  gaussdecode spark apply /var/lib/gaussdecode/orders /srv/orders --follow
  gaussdecode spark apply /var/lib/gaussdecode/orders /srv/lake --format iceberg --catalog lake.shop
  gaussdecode spark snapshot orders.yaml /srv/orders --connections 8 --rate 200MiB
  gaussdecode spark query /srv/orders "SELECT count(*) FROM customers"
  gaussdecode spark query /srv/orders "SELECT * FROM customers" --lsn 16/B374D848
  gaussdecode spark verify /var/lib/gaussdecode/orders /srv/orders --dsn "host=db dbname=shop user=cdc"
  gaussdecode spark comments /var/lib/gaussdecode/orders /srv/lake --dsn "host=db dbname=shop user=cdc"
  gaussdecode spark status /var/lib/gaussdecode/orders /srv/orders
  gaussdecode spark columns /var/lib/gaussdecode/orders /srv/orders shop.items --was total=amount
  gaussdecode spark compact /srv/orders
  gaussdecode spark vacuum /srv/orders --older-than-days 7

Landing and target are directories, or URLs: s3://bucket/prefix, gs://, az://, abfss://, hdfs://, with
settings of the store after a question mark; see docs/spark.md#on-object-stores.
  gaussdecode spark apply s3://lake/orders "s3://lake/tables?region=eu-central-1"
"""

import argparse
import contextlib
import dataclasses
import datetime as dt
import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from gaussdecode.console.arguments import count, lsn, place, seconds, size
from gaussdecode.console.metrics_file import write_metrics
from gaussdecode.console.signals import until_signal
from gaussdecode.console.spark_session import EndedBy, spark_session
from gaussdecode.console.table import print_table
from gaussdecode.errors import (
    EX_CONFIG,
    EX_IOERR,
    EX_OK,
    ConfigError,
    GaussDecodeError,
    TargetBusyError,
)
from gaussdecode.model.words import counted
from gaussdecode.operations import spark_load
from gaussdecode.operations.owner import work_as_owner_of
from gaussdecode.settings.load import load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from gaussdecode.spark.apply import Options, Summary
    from gaussdecode.spark.checks.data_tests import Failed
    from gaussdecode.spark.log.landing import Point
    from gaussdecode.spark.merge.engine import Engine

_ROWS = 100
_LONGEST_WAIT = 300.0  # seconds between tries while a store is away; arbitrary


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    _apply_arguments(_action(actions, "apply", _apply, "apply a landing's changes to a target"))
    _query_arguments(_action(actions, "query", _query, "query a target in SQL"))
    _columns_arguments(
        _action(actions, "columns", _columns, "resolve ambiguous column identity after DDL")
    )
    _compact_arguments(_action(actions, "compact", _compact, "merge small files of a target"))
    _vacuum_arguments(_action(actions, "vacuum", _vacuum, "remove old versions of a target"))
    _load_arguments(
        _action(
            actions, "snapshot", _load, "load existing rows from the source with Spark executors"
        )
    )
    _verify_arguments(_action(actions, "verify", _verify, "compare a target with its source"))
    _comments_arguments(
        _action(actions, "comments", _comments, "copy the source's comments to a target's tables")
    )
    _status_arguments(_action(actions, "status", _status, "show how far a target has been applied"))


def execute(args: argparse.Namespace) -> int:
    """Run the chosen action."""
    if (
        getattr(args, "config", None) is not None
    ):  # the owner of the target need not be able to read it
        args.config = load(args.config).with_password_read()
        if args.action is not _comments:  # which reads no rows
            spark_load.check_source(args.config)
    if isinstance(args.target, Path):
        work_as_owner_of(args.target)
    return int(args.action(args))


def _action(
    actions: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    run: Callable[[argparse.Namespace], int],
    text: str,
) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=text, description=text)
    parser.set_defaults(action=run)
    return parser


def _point_arguments(parser: argparse.ArgumentParser, prefix: str) -> None:
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        f"--{prefix}n",
        dest="n",
        type=_entry,
        metavar="N[@ID]",
        help="commit entry; ID: only if the landing has this landing_id",
    )
    group.add_argument(f"--{prefix}lsn", dest="lsn", type=lsn, metavar="LSN", help="WAL position")
    group.add_argument(
        f"--{prefix}csn",
        dest="csn",
        type=int,
        metavar="CSN",
        help="commit sequence number (GaussDB)",
    )
    group.add_argument(
        f"--{prefix}time", dest="time", type=_time, metavar="TIME", help="2026-01-31T12:00:00Z"
    )


def _entry(text: str) -> tuple[int, str]:
    number, _, landing_id = text.partition("@")
    try:
        return int(number), landing_id
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no number of an entry, such as 41, or 41@ID with the landing_id of its landing"
        ) from None


def _engine_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--local",
        action="store_true",
        help="run in this process, without Spark; for small landings",
    )
    _session_arguments(parser)


def _session_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--master", metavar="URL", help="of Spark; local[*] outside spark-submit")
    parser.add_argument(
        "--conf",
        action="append",
        type=_setting,
        default=[],
        metavar="NAME=VALUE",
        help="setting of Spark, such as spark.jars.packages=...; may be given again",
    )


def _setting(text: str) -> tuple[str, str]:
    name, is_given, value = text.partition("=")
    if not is_given or not name.startswith("spark."):
        raise argparse.ArgumentTypeError(f"{text!r} is no setting of Spark: spark.name=value")
    return name, value


def _apply_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("root", type=place, help="the landing: directory, or URL of its mirror")
    parser.add_argument("target", type=place, help="target: directory or URL; created if missing")
    parser.add_argument("--tables", metavar="LIST", help="schema.table,... instead of all")
    parser.add_argument(
        "--format",
        metavar="FORMAT",
        choices=("delta", "iceberg"),
        help="delta, or iceberg: an Iceberg catalog has the same tables too",
    )
    parser.add_argument(
        "--catalog",
        metavar="NAME",
        help="names of the tables: CATALOG, CATALOG.NAMESPACE or a pattern with {schema} and {table}; for delta "
        "a catalog of the Spark session, which needs Delta's jar; for iceberg one of pyiceberg's configuration",
    )
    parser.add_argument(
        "--hide-technical-columns",
        action="store_true",
        help="iceberg, new target: current tables show no columns that begin with gd_",
    )
    parser.add_argument(
        "--deletion-vectors",
        action="store_true",
        help="delta: small applies write less; readers must support deletion vectors; from now on",
    )
    parser.add_argument(
        "--partition-by",
        action="append",
        default=[],
        metavar="TABLE=COLUMN,...",
        help="new tables: partition columns",
    )
    parser.add_argument(
        "--mask",
        action="append",
        default=[],
        metavar="TABLE=COLUMN:RULE,...",
        help="new tables: mask values; RULE is null, hash or keep(LETTERS)",
    )
    parser.add_argument(
        "--mask-key",
        type=Path,
        metavar="FILE",
        help="file with the key for hash; give the same key to each apply",
    )
    parser.add_argument(
        "--cluster-by",
        action="append",
        default=[],
        metavar="TABLE=COLUMN,...",
        help="new tables: columns that order the rows of a file",
    )
    parser.add_argument("--history", action="store_true", help="keep earlier versions of rows")
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
    parser.add_argument(
        "--accept-gaps",
        action="store_true",
        help="continue after gap entries, whose changes are lost; the target records this",
    )
    parser.add_argument(
        "--accept-suspects",
        action="store_true",
        help="continue after suspect entries: tables that they name may have wrong rows from there on",
    )
    parser.add_argument(
        "--accept-hidden-truncates",
        action="store_true",
        help="apply a stream that has no TRUNCATE and no DDL (GaussDB's parallel decoding)",
    )
    parser.add_argument(
        "--tests",
        type=Path,
        metavar="FILE",
        help="YAML file of data tests for changed rows, and the action for rows that fail",
    )
    _point_arguments(parser, "to-")
    parser.add_argument("--follow", action="store_true", help="repeat until a signal stops it")
    parser.add_argument("--interval", type=seconds, default=10.0, metavar="SECONDS")
    parser.add_argument(
        "--keep-days", type=_days, default=7.0, metavar="DAYS",
        help="with --follow: remove versions older than this; default 7",
    )  # fmt: skip
    parser.add_argument("--metrics-file", type=Path, metavar="FILE", help="for Prometheus")
    parser.add_argument("--json", action="store_true", help="print summaries as JSON objects")
    _engine_arguments(parser)


def _query_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", type=place, help="directory or URL of the target")
    parser.add_argument(
        "sql",
        help="name tables as schema.name, or name; their products as NAME_history, NAME_changelog",
    )
    parser.add_argument(
        "--root", type=place, help="root of the landing; needed for --time and --csn"
    )
    parser.add_argument("--limit", type=count, default=_ROWS, metavar="ROWS")
    parser.add_argument("--json", action="store_true", help="print one object per row")
    _session_arguments(parser)
    _point_arguments(parser, "")


def _columns_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("root", type=place, help="the landing: directory, or URL of its mirror")
    parser.add_argument("target", type=place, help="directory or URL of the target")
    parser.add_argument("table", help="schema.table that is stopped")
    parser.add_argument(
        "--was",
        action="append",
        type=_was,
        default=[],
        metavar="NEW=OLD",
        help="a column and its earlier name; NEW= for a new column; columns without --was "
        "kept their names",
    )
    parser.add_argument("--by-name", action="store_true", help="all columns kept their names")
    parser.add_argument(
        "--versions",
        type=_versions,
        metavar="OLD:NEW",
        help="two versions of a table that is not stopped",
    )


def _was(text: str) -> tuple[str, str]:
    new, is_given, old = text.partition("=")
    if not is_given or not new:
        raise argparse.ArgumentTypeError(f"{text!r} is not NEW=OLD, or NEW= for a new column")
    return new, old


def _versions(text: str) -> tuple[str, str]:
    old, is_given, new = text.partition(":")
    if not is_given or not old or not new:
        raise argparse.ArgumentTypeError(f"{text!r} is not OLD:NEW, two versions of the table")
    return old, new


def _compact_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", type=place, help="directory or URL of the target")
    parser.add_argument("--tables", metavar="LIST", help="schema.table,... instead of all")
    parser.add_argument("--target-size", type=size, default=128 << 20, metavar="SIZE")
    parser.add_argument("--buckets", type=count, metavar="N", help="new number of buckets")
    _engine_arguments(parser)


def _vacuum_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", type=place, help="directory or URL of the target")
    parser.add_argument("--older-than-days", type=_days, default=7.0, metavar="DAYS")


def _status_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("root", type=place, help="the landing: directory, or URL of its mirror")
    parser.add_argument("target", type=place, help="directory or URL of the target")
    parser.add_argument("--metrics", action="store_true", help="print Prometheus' text format")


def _load_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = spark_load.DESCRIPTION
    spark_load.add_arguments(parser)
    _engine_arguments(parser)


def _verify_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("root", type=place, help="the landing: directory, or URL of its mirror")
    parser.add_argument("target", type=place, help="directory or URL of the target")
    _source_arguments(parser)
    parser.add_argument("--tables", metavar="LIST", help="schema.table,... instead of all")
    parser.add_argument(
        "--wait", type=seconds, default=60.0, metavar="SECONDS",
        help="longest wait for open transactions of the source, and for the landing to reach the position",
    )  # fmt: skip
    parser.add_argument("--limit", type=count, default=_ROWS, metavar="ROWS", help="keys shown")
    parser.add_argument(
        "--repair",
        action="store_true",
        help="ask the daemon for snapshots of the differing rows or tables",
    )
    parser.add_argument("--metrics-file", type=Path, metavar="FILE", help="for Prometheus")
    parser.add_argument("--json", action="store_true", help="print one object")
    _engine_arguments(parser)


def _source_arguments(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--dsn",
        metavar="DSN",
        help="connection string of a PostgreSQL source; libpq's passfile works",
    )
    source.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="configuration file of the daemon's slot, in place of --dsn; GaussDB needs it",
    )
    parser.add_argument(
        "--allow-insecure", action="store_true", help="allow a connection without verify-full"
    )


def _comments_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Give the tables of a target, with their histories and changelogs, the "
        "comments of the source's tables and columns. Equal comments are not written again."
    )
    parser.add_argument("root", type=place, help="the landing: directory, or URL of its mirror")
    parser.add_argument("target", type=place, help="directory or URL of the target")
    _source_arguments(parser)
    parser.add_argument("--tables", metavar="LIST", help="schema.table,... instead of all")
    parser.add_argument(
        "--max-length", type=count, metavar="LETTERS",
        help="cut longer comments; catalogs of Hive and Glue take 255 for a column",
    )  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="change nothing, print the changes")
    parser.add_argument(
        "--wait",
        type=seconds,
        default=60.0,
        metavar="SECONDS",
        help="longest wait for a running apply",
    )
    parser.add_argument("--json", action="store_true", help="print one object")
    _session_arguments(parser)


def _days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = -1.0
    if not 0 <= days < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of days from 0")
    return days


def _time(text: str) -> dt.datetime:
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        found = dt.datetime(1, 1, 1)  # noqa: DTZ001 - refused below
    if found.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time with zone: 2026-01-31T12:00:00Z")
    return found


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _point(args: argparse.Namespace) -> "Point":
    from gaussdecode.spark.log.landing import Point

    n, landing_id = (None, "") if args.n is None else args.n
    return Point(
        n=n,
        lsn=None if args.lsn is None else int(args.lsn),
        csn=args.csn,
        time=args.time,
        landing_id=landing_id,
    )


@contextlib.contextmanager
def _engine(args: argparse.Namespace) -> Iterator["Engine"]:
    from gaussdecode.spark.merge.engine import LocalEngine, SparkEngine

    if args.local:
        yield LocalEngine()
        return
    with spark_session(args.master, _settings(args)) as session:
        yield SparkEngine(session)


def _settings(args: argparse.Namespace) -> dict[str, str]:
    """Spark settings: those of the target's format, and those given."""
    from gaussdecode.spark.target.formats import DELTA, settings
    from gaussdecode.spark.target.store import Target

    kept_as, catalog = getattr(args, "format", None), getattr(args, "catalog", None)
    if (args.target / "target.json").exists():
        target = Target(args.target)
        kept_as, catalog = kept_as or target.format, catalog or target.catalog
    needed = settings(DELTA) if catalog and (kept_as or DELTA) == DELTA else {}
    return {**needed, **dict(args.conf)}


def _apply(args: argparse.Namespace) -> int:
    from gaussdecode.spark.apply import Options
    from gaussdecode.spark.checks.data_tests import load_tests
    from gaussdecode.spark.log.masks import read_key, read_masks
    from gaussdecode.spark.target.layout import read_layouts

    key = b"" if args.mask_key is None else read_key(args.mask_key)
    options = Options(
        tables=_names(args.tables),
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
    )
    with until_signal() as stop, EndedBy(stop), _engine(args) as engine:
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
                engine, args.root, args.target, options, to=_point(args), progress=progress
            )
        except GaussDecodeError as error:  # a store or a catalog that is away, another writer
            if not args.follow or not error.retryable:
                raise
            wait = min(args.interval * 2**failures, max(args.interval, _LONGEST_WAIT))
            failures += not isinstance(error, TargetBusyError)
            say = progress if isinstance(error, TargetBusyError) else _warn
            say(f"put off for {wait:g} s: {error}")
            if stop.wait(wait):
                return EX_OK
            continue
        failures = 0
        found |= {(of.table, of.test): of for of in summary.tests}
        _report(args, summary, time.monotonic() - begun, found.values())
        if summary.stopped_at_gap is not None:
            print(_gap_text(summary), file=sys.stderr)
            return EX_CONFIG
        if summary.stopped and not args.follow:
            return EX_CONFIG
        if args.follow:
            maintenance.keep(is_changed=summary.tables > 0)
        if not args.follow or stop.wait(args.interval):
            return EX_OK


def _warn(text: str) -> None:
    print(f"gaussdecode: {text}", file=sys.stderr, flush=True)


def _gap_text(summary: "Summary") -> str:
    return (
        f"gaussdecode: entry {summary.stopped_at_gap} is a gap: changes are missing there. The "
        f"target stays at entry {summary.n}. Snapshot the tables again, or go on with "
        "--accept-gaps, which is recorded in the target"
    )


def _report(
    args: argparse.Namespace, summary: "Summary", took: float, tests: "Iterable[Failed]"
) -> None:
    """Print the result of one apply; in a loop only if it did something."""
    from gaussdecode.spark.maintain.upkeep import metrics_text

    if args.metrics_file is not None:
        write_metrics(args.metrics_file, metrics_text(args.root, args.target, tests))
    if summary.n == summary.from_n and not summary.tables and args.follow:
        return
    for title, why in summary.stopped.items():
        text = _stopped_text(args, title, why, is_suspect=title in summary.suspect_tables)
        print(f"gaussdecode: {text}", file=sys.stderr, flush=True)
    for title in summary.gone:
        print(f"gaussdecode: {_gone_text(title)}", file=sys.stderr, flush=True)
    if args.json:
        print(json.dumps({**dataclasses.asdict(summary), "seconds": round(took, 3)}), flush=True)
        return
    part = f" and of the next what is up to CSN {summary.part}" if summary.part else ""
    print(
        f"{args.target}: entry {summary.from_n} to {summary.n}{part} of {summary.last_n}, "
        f"{summary.tables} tables, {summary.rows} changes, {summary.bytes_read} bytes read, "
        f"{summary.bytes_written} written, {took:.1f} s",
        flush=True,
    )
    for text in _alarms(summary):
        print(f"gaussdecode: {text}", file=sys.stderr, flush=True)


def _stopped_text(args: argparse.Namespace, title: str, why: str, *, is_suspect: bool) -> str:
    from gaussdecode.spark.merge.plan import UNTOLD

    stands = f"{title} stands still, the other tables go on: {why}"
    snapshot = f"gaussdecode snapshot CONFIG --table {title}"
    if is_suspect:
        return (
            f"{stands}. The stream of changes does not show that. Read the table again: {snapshot}; with "
            "landing.on-suspect: snapshot the daemon does so by itself. Or go on with rows that may be "
            "wrong: --accept-suspects"
        )
    if why == UNTOLD:
        return f"{stands}, then snapshot it: {snapshot}"
    return f"{stands}. Snapshot it ({snapshot}), or declare how columns match: gaussdecode spark columns {args.root} {args.target} {title}"


def _gone_text(title: str) -> str:
    return f"{title} is gone from the source, and the columns of its last changes cannot be matched: it keeps the rows from before them. To remove its rows: gaussdecode snapshot CONFIG --table {title} --dropped"


def _alarms(summary: "Summary") -> Iterator[str]:
    for found in summary.tests:
        if found.rows:
            what = ", and are in quarantine" if found.on_failure == "quarantine" else ""
            yield f"{found.table}: {counted(found.rows, 'row')} fail test {found.test!r}{what}"
    if summary.suspects:
        yield f"entries {list(summary.suspects)} may be incomplete; compare with the source"
    for table, n in sorted(summary.quarantined.items()):
        yield (
            f"table {unquote(table, errors='replace')} stopped at entry {n}, and stays as it was there "
            "until a snapshot of it: gaussdecode snapshot CONFIG --table"
        )
    if summary.accepted_gaps:
        yield f"changes are missing at entries {list(summary.accepted_gaps)}, as accepted"
    for title, changes in sorted(summary.unmatched.items()):
        yield (
            f"{title}: {counted(changes, 'change does', 'changes do')} not fit its rows (an update or a removal of "
            "a row that is not there, or an insert of one that is): rows are older than the slot, the source changed the table without sending the changes, or an upsert into a ustore table was overtaken. "
            "Compare it (gaussdecode spark verify), or read it again (gaussdecode snapshot CONFIG --table)"
        )


def _query(args: argparse.Namespace) -> int:
    with spark_session(args.master, _settings(args)) as session:
        return _answer(session, args)


def _answer(session: "SparkSession", args: argparse.Namespace) -> int:
    from pyspark.errors import PySparkException

    from gaussdecode.spark.sql.views import ask, refusal

    frame = ask(session, args.target, args.sql, at=_point(args), root=args.root)
    try:
        rows = frame.limit(args.limit + 1).collect()
    except PySparkException as error:
        raise refusal(error) from None
    shown = rows[: args.limit]
    if args.json:
        for row in shown:
            print(json.dumps(row.asDict(recursive=True), default=str))
    else:
        print_table(frame.columns, [[_cell(value) for value in row] for row in shown])
    if len(rows) > args.limit:
        print(
            f"gaussdecode: only the first {counted(args.limit, 'row')}, see --limit",
            file=sys.stderr,
        )
    return EX_OK


def _cell(value: Any) -> str:  # Any: whatever Spark gives
    return "" if value is None else str(value)


def _columns(args: argparse.Namespace) -> int:
    from gaussdecode.spark.log.landing import Landing
    from gaussdecode.spark.merge.column_identity import decide, question_of
    from gaussdecode.spark.target.store import Target

    store = Target(args.target)
    question = question_of(Landing(args.root), store, args.table, args.versions)
    if not args.was and not args.by_name:
        print(f"{question.new.title}: {question.why}")
        for word, schema in (("before", question.old), ("after", question.new)):
            names = (f"{c.true_name} {_number_text(c.number)}" for c in schema.columns)
            print(f"  {word}: {', '.join(names)}")
        print("declare how columns match with --was NEW=OLD, or --by-name")
        return EX_OK
    with store.locked():
        decide(question, store, dict(args.was))
    print(f"{question.new.title}: kept in {args.target}; apply again")
    return EX_OK


def _number_text(number: int | None) -> str:
    return "(unknown)" if number is None else f"({number})"


def _compact(args: argparse.Namespace) -> int:
    from gaussdecode.spark.maintain.upkeep import compact_with

    with _engine(args) as engine:
        done = compact_with(
            engine,
            args.target,
            tables=_names(args.tables),
            target_bytes=args.target_size,
            buckets=args.buckets,
        )
    print(
        f"{args.target}: {counted(done.tables, 'table')}, {counted(done.files_before, 'file')} became "
        f"{done.files_after}; vacuum removes the old ones"
    )
    return EX_OK


def _vacuum(args: argparse.Namespace) -> int:
    from gaussdecode.spark.maintain.upkeep import DAY, vacuum

    done = vacuum(args.target, older_than_seconds=args.older_than_days * DAY)
    print(
        f"{args.target}: removed {counted(done.versions, 'version')} and {counted(done.files, 'file')} "
        f"({counted(done.bytes, 'byte')})"
    )
    return EX_OK


def _status(args: argparse.Namespace) -> int:
    from gaussdecode.spark.maintain.upkeep import metrics_text, status

    if args.metrics:
        print(metrics_text(args.root, args.target), end="")
        return EX_OK
    found = status(args.root, args.target)
    print(
        f"{args.target}: entry {found.n} of {found.last_n}, {found.lag_entries} behind, "
        f"{found.lag_seconds:.0f} s"
    )
    for table, stop in found.stopped.items():
        print(f"{args.target}: {table} stands still at entry {stop['n']}: {stop['why']}")
    for table, number in found.unmatched.items():
        changes = counted(number, "change did", "changes did")
        print(
            f"{args.target}: {table}: {changes} not fit its rows; compare it: gaussdecode spark verify"
        )
    for table, stop in found.gone.items():
        print(
            f"{args.target}: {table} is gone from the source, and stays as it was at entry {stop['n']}"
        )
    return EX_OK


def _load(args: argparse.Namespace) -> int:
    with _engine(args) as engine:
        return spark_load.execute(args, args.config, engine)


def _verify(args: argparse.Namespace) -> int:
    from gaussdecode.operations.compare.compare import Comparison, report_lines
    from gaussdecode.settings.rules import SourceKind
    from gaussdecode.snapshot.held import Server
    from gaussdecode.source.address import SourceAddress, source_address

    if args.repair and not isinstance(args.root, Path):
        raise ConfigError(
            f"{args.root}: --repair asks the daemon, in its own directory; verify with it on its host, "
            "or run gaussdecode snapshot there"
        )
    if args.config is not None:
        server = Server.of(args.config, source_address(args.config))
    else:
        address = SourceAddress(args.dsn, is_insecure_allowed=args.allow_insecure)
        server = Server(SourceKind.POSTGRESQL, address, "gaussdecode_verify", args.wait)
    with _engine(args) as engine:
        comparison = Comparison(engine, args.root, args.target, server, args.config, args.wait)
        result = comparison.run(_names(args.tables))
        if args.repair:
            result = comparison.ask_for_repair(result)
    if args.metrics_file is not None:
        write_metrics(args.metrics_file, result.metrics_text(args.target))
    if args.json:
        print(json.dumps(result.to_record()))
    else:
        print("\n".join(report_lines(result, args.limit)))
    return EX_OK if result.is_equal else EX_IOERR


def _comments(args: argparse.Namespace) -> int:
    from gaussdecode.operations.compare import lake_comments

    request = lake_comments.Request(
        root=args.root,
        target=args.target,
        tables=_names(args.tables),
        dsn=args.dsn,
        config=args.config,
        is_insecure_allowed=args.allow_insecure,
        max_length=args.max_length,
        wait=args.wait,
        is_dry=args.dry_run,
    )
    asked = lake_comments.ask(request)
    found = lake_comments.update(request, asked)
    if args.json:
        print(json.dumps(lake_comments.record(found, is_dry=args.dry_run)))
    else:
        print("\n".join(lake_comments.report_lines(found, args.target, is_dry=args.dry_run)))
    return EX_IOERR if any(of.is_failed for of in found) else EX_OK
