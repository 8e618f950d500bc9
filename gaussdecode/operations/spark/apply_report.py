"""Say what an apply did, and what needs a look."""

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING
from urllib.parse import unquote

from gaussdecode.console.metrics_file import write_metrics
from gaussdecode.model.words import counted

if TYPE_CHECKING:
    from gaussdecode.spark.apply import Summary
    from gaussdecode.spark.checks.data_tests import Failed


def warn(text: str) -> None:
    """Say what needs a look, on standard error."""
    print(f"gaussdecode: {text}", file=sys.stderr, flush=True)


def gap_text(summary: "Summary") -> str:
    """Say that an apply ended before a gap."""
    return (
        f"gaussdecode: entry {summary.stopped_at_gap} is a gap: changes are missing there. The "
        f"target stays at entry {summary.n}. Snapshot the tables again, or go on with "
        "--accept-gaps, which is recorded in the target"
    )


def report(
    args: argparse.Namespace, summary: "Summary", took: float, tests: "Iterable[Failed]"
) -> None:
    """Print the result of one apply; in a loop only if it did something."""
    from gaussdecode.spark.maintain.status import metrics_text

    if args.metrics_file is not None:
        write_metrics(args.metrics_file, metrics_text(args.root, args.target, tests))
    if summary.n == summary.from_n and not summary.tables and args.follow:
        return
    for title, why in summary.stopped.items():
        warn(_stopped_text(args, title, why, summary))
    for title in summary.gone:
        warn(_gone_text(title))
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
        warn(text)


def _stopped_text(args: argparse.Namespace, title: str, why: str, summary: "Summary") -> str:
    from gaussdecode.spark.merge.stop_rules import UNTOLD

    stands = f"{title} stands still, the other tables go on: {why}"
    snapshot = f"gaussdecode snapshot CONFIG --table {title}"
    if title in summary.ddl_tables:
        return stands
    if title in summary.suspect_tables:
        return (
            f"{stands}. The stream of changes does not show that. Read the table again: "
            f"{snapshot}; with landing.on-suspect: snapshot the daemon does so by itself. Or go on "
            "with rows that may be wrong: --accept-suspects"
        )
    if why == UNTOLD:
        return f"{stands}, then snapshot it: {snapshot}"
    return (
        f"{stands}. Snapshot it ({snapshot}), or declare how columns match: gaussdecode spark "
        f"columns {args.root} {args.target} {title}"
    )


def _gone_text(title: str) -> str:
    return (
        f"{title} is gone from the source, and the columns of its last changes cannot be matched: "
        "it keeps the rows from before them. To remove its rows: gaussdecode snapshot CONFIG "
        f"--table {title} --dropped"
    )


def _alarms(summary: "Summary") -> Iterator[str]:
    for found in summary.tests:
        if found.rows:
            what = ", and are in quarantine" if found.on_failure == "quarantine" else ""
            yield f"{found.table}: {counted(found.rows, 'row')} fail test {found.test!r}{what}"
    if summary.suspects:
        yield f"entries {list(summary.suspects)} may be incomplete; compare with the source"
    for table, n in sorted(summary.quarantined.items()):
        yield (
            f"table {unquote(table, errors='replace')} stopped at entry {n}, and stays as it was "
            "there until a snapshot of it: gaussdecode snapshot CONFIG --table"
        )
    if summary.accepted_gaps:
        yield f"changes are missing at entries {list(summary.accepted_gaps)}, as accepted"
    for title, changes in sorted(summary.unmatched.items()):
        yield (
            f"{title}: {counted(changes, 'change does', 'changes do')} not fit its rows (an update "
            "or a removal of a row that is not there, or an insert of one that is): rows are older "
            "than the slot, the source changed the table without sending the changes, or an upsert "
            "into a ustore table was overtaken. Compare it (gaussdecode spark verify), or read it again "
            "(gaussdecode snapshot CONFIG --table)"
        )
