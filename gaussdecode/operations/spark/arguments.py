"""Arguments that several actions have, and what is made of them."""

import argparse
import contextlib
import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gaussdecode.console.arguments import lsn, place
from gaussdecode.console.spark_session import spark_session

if TYPE_CHECKING:
    from gaussdecode.spark.log.landing import Point
    from gaussdecode.spark.merge.engine import Engine


def landing_argument(parser: argparse.ArgumentParser) -> None:
    """Declare the landing."""
    parser.add_argument("root", type=place, help="the landing: directory, or URL of its mirror")


def target_argument(
    parser: argparse.ArgumentParser, help_text: str = "directory or URL of the target"
) -> None:
    """Declare the target."""
    parser.add_argument("target", type=place, help=help_text)


def new_target_argument(parser: argparse.ArgumentParser) -> None:
    """Declare a target that may be new."""
    target_argument(parser, "target: directory or URL; created if missing")


def tables_argument(
    parser: argparse.ArgumentParser, help_text: str = "schema.table,... instead of all"
) -> None:
    """Declare the tables."""
    parser.add_argument("--tables", metavar="LIST", help=help_text)


def flag(parser: argparse.ArgumentParser, name: str, help_text: str) -> None:
    """Declare an option without a value."""
    parser.add_argument(name, action="store_true", help=help_text)


def repeated(parser: argparse.ArgumentParser, name: str, metavar: str, help_text: str) -> None:
    """Declare an option that may be given again."""
    parser.add_argument(name, action="append", default=[], metavar=metavar, help=help_text)


def point_arguments(parser: argparse.ArgumentParser, prefix: str) -> None:
    """Declare the options of a point in the log, each with a prefix."""
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


def _time(text: str) -> dt.datetime:
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        found = dt.datetime(1, 1, 1)  # noqa: DTZ001 - refused below
    if found.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time with zone: 2026-01-31T12:00:00Z")
    return found


def engine_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare where tasks run."""
    flag(parser, "--local", "run in this process, without Spark; for small landings")
    session_arguments(parser)


def session_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of a Spark session."""
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


def source_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare how the source is reached."""
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
    flag(parser, "--allow-insecure", "allow a connection without verify-full")


def days(text: str) -> float:
    """Read a number of days."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of days from 0")
    return number


def names(text: str | None) -> list[str] | None:
    """Read a list with commas."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def point_of(args: argparse.Namespace) -> "Point":
    """The point that was given."""
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
def engine_of(args: argparse.Namespace) -> Iterator["Engine"]:
    """What runs the tasks."""
    from gaussdecode.spark.merge.engine import LocalEngine, SparkEngine

    if args.local:
        yield LocalEngine()
        return
    with spark_session(args.master, settings_of(args)) as session:
        yield SparkEngine(session)


def settings_of(args: argparse.Namespace) -> dict[str, str]:
    """Spark settings: those of the target's format, and those given."""
    from gaussdecode.spark.target.formats import DELTA, settings
    from gaussdecode.spark.target.store import Target

    kept_as, catalog = getattr(args, "format", None), getattr(args, "catalog", None)
    if (args.target / "target.json").exists():
        target = Target(args.target)
        kept_as, catalog = kept_as or target.format, catalog or target.catalog
    needed = settings(DELTA) if catalog and (kept_as or DELTA) == DELTA else {}
    return {**needed, **dict(args.conf)}
