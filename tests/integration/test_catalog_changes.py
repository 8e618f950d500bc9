"""Commands that change stored rows without a row in the stream: the table is right, or the log says so first.

Each case is a table, a command and changes of rows after it, tried while the daemon streams, with the
command in one transaction with rows, with no row after it, and while the daemon is down. In the end a
target is built: what does not stand still there has the source's rows. Cases that change nothing
must not be named either, or nobody would heed the log.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from kit import landing, targets
from kit.catalogcases import Case, make_tables, text_of
from kit.daemon import Daemon
from kit.postgres import Database, run
from kit.stranger import Reader

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]

_GONE: Final = {"t_renamed", "t_dropped"}
_UNPROVED: Final = {"t_dropped_and_added"}  # columns that nobody can tell, while nobody read
# What docs/guarantees.md says is not noticed: names of columns are learned with the next change of a row,
# and a partition that is emptied in the transaction that emptied the whole table leaves no trace.
_UNNOTICED: Final = {"quiet": {"t_columns_swapped"}, "transaction": {"t_part_all_and_one"}}


def do(database: Database, title: str, case: Case, mode: str) -> None:
    """Carry a case out."""
    ddl, after = text_of(case.ddl, title), text_of(case.after, title)
    with database.connect() as session:
        if mode == "transaction" and not case.is_alone:
            run(session, f"BEGIN; DELETE FROM {title} WHERE id = 9; {ddl}; {after}; COMMIT")
            return
        for statement in ddl.split(";"):
            run(session, statement)
        if mode != "quiet":
            run(session, after)


@pytest.mark.parametrize(
    ("postgres", "mode"),
    [
        (14, "streaming"),
        (15, "down"),
        (16, "quiet"),
        (17, "transaction"),
        (18, "down"),
        (18, "transaction"),
    ],
    indirect=["postgres"],
)
def test_right_or_said(
    database: Database, make_daemon: MakeDaemon, tmp_path: Path, mode: str
) -> None:
    """No table of a target has other rows than its source, unless the log named it before."""
    cases = make_tables(database)
    database.create_slot()
    with make_daemon(database) as daemon:
        for title, case in cases.items():
            database.execute(text_of(case.rows, title))
        daemon.catch_up()
        if mode == "down":
            assert daemon.stop() == 0
        for title, case in cases.items():
            do(database, title, case, mode)
        if mode == "down":
            daemon.start()
        daemon.catch_up()
        daemon.catch_up()  # what a TRUNCATE may explain is judged when the stream has passed
        assert daemon.stop() == 0
    summary = targets.apply_local(daemon.root, tmp_path / "target")
    found = targets.compare(
        database, summary, tmp_path / "target", lambda title: title.removeprefix("public.") in cases
    )
    targets.compare_stranger(database, Reader(daemon.root).advance(), found)
    named = {title for extra in suspects(daemon) for title in extra["tables"]}
    print(mode, len(found.equal), "equal,", len(found.stopped), "stopped")
    unnoticed = _UNNOTICED.get(mode, set())
    assert found.different.keys() <= {f"public.{title}" for title in unnoticed}, found.different
    wrong = {
        title
        for title, case in cases.items()
        if (f"public.{title}" in named) != case.is_said
        and not case.is_doubtful
        and title not in unnoticed
    }
    assert wrong == set()
    going_on = {
        f"public.{title}"
        for title, case in cases.items()
        if not (case.is_said or case.is_doubtful or title in _GONE | _UNPROVED | unnoticed)
    }
    assert going_on <= found.equal


def suspects(daemon: Daemon) -> list[dict[str, Any]]:
    """What the suspect entries of a landing say."""
    return [
        entry["extra"] for entry in landing.read_entries(daemon.root) if entry["kind"] == "suspect"
    ]
