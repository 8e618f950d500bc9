"""The procedures of docs/procedures.md, run as they stand there.

The indented lines below a heading are taken from the page, placeholders are filled in, and
each is carried out: gaussdecode's commands by the program, systemctl by starting and stopping
the daemon, SQL on the server, and everything else by a shell.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from kit import landing, oracle
from kit.daemon import Daemon
from kit.postgres import Database
from kit.runbook import PROCEDURES, Operator, lines_of

from gaussdecode.errors import EX_CONFIG, EX_OK

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]


def operator_of(daemon: Daemon) -> Operator:
    """One who knows the placeholders of a daemon."""
    return Operator(
        daemon,
        {
            "CONFIG": str(daemon.config_path),
            "ROOT": str(daemon.root),
            "SLOT": daemon.config_path.stem,
            "SCHEMA.NAME": "public.t",
            "/etc/gaussdecode": str(daemon.config_path.parent),
        },
    )


def landed_a_row(database: Database, make_daemon: MakeDaemon) -> Daemon:
    """A daemon at work, with one row landed."""
    database.execute("CREATE TABLE public.t (id int4 PRIMARY KEY, name text)")
    database.create_slot()
    daemon = make_daemon(database).start()
    database.execute("INSERT INTO public.t VALUES (1, 'a'), (2, 'b')")
    daemon.catch_up()
    return daemon


def test_the_slot_is_lost(database_15: Database, make_daemon: MakeDaemon) -> None:
    """Behind the gap the landing equals the source again, and the gap stays on record."""
    daemon = landed_a_row(database_15, make_daemon)
    assert daemon.stop() == EX_OK
    database_15.execute(f"SELECT pg_drop_replication_slot('{database_15.slot}')")
    database_15.execute("UPDATE public.t SET name = 'unseen' WHERE id = 1")
    database_15.execute("INSERT INTO public.t VALUES (3, 'unseen too')")
    assert daemon.start().wait() == EX_CONFIG

    operator = operator_of(daemon)
    listing, *rest = lines_of("The slot is lost")
    assert listing.startswith("gaussdecode gaps ")
    (gap,) = map(json.loads, operator.carry_out(f"{listing} --json").splitlines())
    operator.words["FROM"] = gap["from_lsn"]
    for line in rest:
        operator.carry_out(line)

    database_15.execute("UPDATE public.t SET name = 'seen' WHERE id = 3")
    daemon.catch_up()
    assert daemon.stop() == EX_OK
    oracle.check(daemon.root, database_15)
    kinds = [entry["kind"] for entry in daemon.entries()]
    assert kinds.count("gap") == 2


def test_a_table_stopped(database_15: Database, make_daemon: MakeDaemon) -> None:
    """A table that was forgotten in the publication lands with all of its rows."""
    database_15.execute("CREATE TABLE public.t (id int4 PRIMARY KEY)")
    database_15.execute("CREATE TABLE public.other (id int4 PRIMARY KEY)")
    database_15.execute(f'DROP PUBLICATION "{database_15.publication}"')
    database_15.execute(f'CREATE PUBLICATION "{database_15.publication}" FOR TABLE public.other')
    database_15.create_slot()
    database_15.execute("INSERT INTO public.t VALUES (1)")
    database_15.execute("INSERT INTO public.other VALUES (1)")
    daemon = make_daemon(database_15).start()
    daemon.catch_up()
    operator = operator_of(daemon)
    operator.words["orders"] = f'"{database_15.publication}"'
    show, add, copy = lines_of("A table stopped")
    assert "public.t " not in operator.carry_out(show)
    operator.carry_out(add)
    operator.carry_out(copy)
    assert "public.t " in operator.carry_out(show)
    database_15.execute("INSERT INTO public.t VALUES (2)")
    daemon.catch_up()
    assert daemon.stop() == EX_OK
    oracle.check(daemon.root, database_15)


def test_move_to_another_host(
    database_15: Database, make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    """Nothing is lost or doubled on the way, and the copy left behind does not land again."""
    daemon = landed_a_row(database_15, make_daemon)
    here = daemon.config_path.parent
    (here / f"{daemon.config_path.stem}.password").write_text("secret\n")
    times = {path.name: path.stat().st_mtime_ns for path in daemon.root.rglob("*.parquet")}
    stop, *rest = lines_of("Move to another host")
    operator = operator_of(daemon)
    operator.carry_out(stop)
    # From here on this is the new host, and what was here is the old one's.
    there = tmp_path / "old-host"
    here.rename(there)
    here.mkdir()
    operator.old_host = {str(here): str(there)}
    database_15.execute("INSERT INTO public.t VALUES (3, 'on the way')")
    for line in rest:
        operator.carry_out(line)
    database_15.execute("DELETE FROM public.t WHERE id = 1")
    daemon.catch_up()
    assert daemon.stop() == EX_OK
    oracle.check(daemon.root, database_15)
    assert [change.op for change in landing.read(daemon.root).changes] == ["I", "I", "I", "D"]
    moved = {path.name: path.stat().st_mtime_ns for path in daemon.root.rglob("*.parquet")}
    assert times.items() <= moved.items(), "streams read files in the order of their times"

    left = Daemon(database_15, there)
    assert left.start().wait() == EX_CONFIG
    assert "was confirmed up to" in left.log_tail()


def test_every_procedure_is_there() -> None:
    """One heading for each question that is asked at night."""
    chapter = PROCEDURES.read_text().split("\n## When something happens\n")[1].split("\n## ")[0]
    assert re.findall(r"^### (.*)$", chapter, re.MULTILINE)[:12] == [
        "Lag grows",
        "The slot is lost",
        "A publication was dropped or changed",
        "A command changed rows that the stream does not have",
        "The disk is full",
        "A table stopped",
        "A table is in quarantine",
        "Change the password, the certificate or the authority",
        "Move to another host",
        "Failover",
        "Upgrade",
        "Remove",
    ]
