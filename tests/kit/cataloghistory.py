"""Seeded lives of a few tables: rows and commands of all cases, mixed, over restarts and kills of the daemon.

At each stop a target is brought up to the landing. A table that does not stand still there has the source's
rows; the reader that is made from the format's page alone has the same.
"""

import contextlib
import io
import json
from pathlib import Path
from random import Random
from typing import Final

import psycopg

from gaussdecode.cli import main
from kit import targets
from kit.catalogcases import CASES, Case, make_tables, text_of
from kit.daemon import Daemon, wait_until
from kit.postgres import Database, Session
from kit.stranger import Reader

_LATE: Final = {
    "renamed",
    "dropped",
    "part_all_and_one",
}  # one is a documented limit, the others end a table
_CASES_EACH: Final = 14


class CatalogHistory:
    """Of one source.

    Args:
        database: the source.
        daemon: of it.
        seed: of everything that is chosen.
        reads_again: the daemon has ``on-suspect: snapshot``.

    Attributes:
        equal: how often a table was compared and was equal.
        stopped: how often one stood still.
    """

    def __init__(self, database: Database, daemon: Daemon, seed: int, *, reads_again: bool) -> None:
        self.rng = Random(seed)
        self._database = database
        self._daemon = daemon
        self._reads_again = reads_again
        chosen = self.rng.sample(sorted(CASES.keys() - _LATE), _CASES_EACH)
        self._tables = make_tables(database, chosen)
        self._last = 9
        self.done: list[str] = []
        self.equal = self.stopped = 0
        for title in self._tables:
            self._columns_made_anew(title)

    def _columns_made_anew(self, title: str) -> None:
        """Some tables have attribute numbers with holes."""
        if self.rng.random() < 0.3:
            self._do(f"ALTER TABLE {title} ADD junk int; ALTER TABLE {title} DROP junk")

    def insert_all(self) -> None:
        """First rows."""
        for title, case in self._tables.items():
            self._do(text_of(case.rows, title))

    def live(self, steps: int) -> None:
        """Do so many things."""
        for _ in range(steps):
            title = self.rng.choice(sorted(self._tables))
            case = self._tables[title]
            dice = self.rng.random()
            if dice < 0.3:
                self._command(title, case)
            elif dice < 0.36:
                self._daemon.kill9()
                self._daemon.start()
            elif dice < 0.42:
                self._daemon.wait_for_state("streaming")
                assert self._daemon.stop() == 0
                for _ in range(self.rng.randint(1, 4)):
                    self._command(title, case)
                    self._do(self._rows(title, case))
                self._daemon.start()
            else:
                self._do(self._rows(title, case))

    def _is_whole(self) -> bool:
        """Whether all of the tables that suspect entries name were read again, of those that are sent.

        Partitions may have gone, and a table may have stayed unlogged.
        """
        with contextlib.redirect_stdout(io.StringIO()) as text:
            main(["gaps", "--unaccepted", "--json", str(self._daemon.root)])
        left = {
            t for line in text.getvalue().splitlines() for t in json.loads(line)["not_read_again"]
        }
        sent = {
            f"public.{title}"
            for (title,) in self._database.execute(
                "SELECT tablename FROM pg_publication_tables WHERE schemaname = 'public'"
            )
        }
        return not left & sent & {f"public.{title}" for title in self._tables}

    def _command(self, title: str, case: Case) -> None:
        """The case's own, or one of another case with the same table; alone or with rows."""
        alike = [c for name, c in CASES.items() if c.setup == case.setup and name not in _LATE]
        other = self.rng.choice([case, *alike])
        if other.since > self._database.server.major:
            return
        ddl = text_of(other.ddl, title)
        if not other.is_alone and self.rng.random() < 0.5:
            self._do(f"BEGIN; {self._rows(title, case)}; {ddl}; {self._rows(title, case)}; COMMIT")
            return
        for statement in ddl.split(";"):
            self._do(statement)

    def _rows(self, title: str, case: Case) -> str:
        dice = self.rng.random()
        if dice < 0.4:
            first, self._last = self._last + 1, self._last + self.rng.randint(1, 5)
            rows = text_of(case.rows, title)
            return rows.replace("generate_series(1, 9)", f"generate_series({first}, {self._last})")
        rest = self.rng.randrange(4)
        if dice < 0.7:
            return f"UPDATE {title} SET id = id WHERE id % 4 = {rest}"
        if dice < 0.95:
            return f"DELETE FROM {title} WHERE id % 7 = {rest}"
        return f"TRUNCATE {title}"

    def _do(self, text: str) -> None:
        """Run something; what does not go after what was done before is left."""
        with self._database.connect() as session, contextlib.suppress(psycopg.Error):
            _run(session, text)
            self.done.append(text)

    def compare(self, target: Path) -> None:
        """Names of columns are learned with rows: one of each table is touched before."""
        for title in self._tables:
            self._do(f"UPDATE {title} SET id = id WHERE id = (SELECT min(id) FROM {title})")
        self._daemon.catch_up()
        self._daemon.catch_up()
        if self._reads_again:
            wait_until(self._is_whole, "tables that are suspect are read again")
        summary = targets.apply_local(self._daemon.root, target)
        found = targets.compare(
            self._database,
            summary,
            target,
            lambda title: title.removeprefix("public.") in self._tables,
        )
        assert found.different == {}, (found.different, self.done[-60:])
        targets.compare_stranger(self._database, Reader(self._daemon.root).advance(), found)
        self.equal += len(found.equal)
        self.stopped += len(found.stopped)


def _run(session: Session, text: str) -> None:
    session.execute("SET lock_timeout = '20s'")
    session.execute(text.encode())
