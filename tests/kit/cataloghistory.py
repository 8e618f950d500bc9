"""Seeded lives of a few tables: rows and commands of all cases, mixed, over restarts and kills of the daemon.

Servers send again what was confirmed, and one may go back to the past.

The tables are in one database, or in several that land together, each with changes at its own pace.

At each stop a target is brought up to the landing. A table that does not stand still there has the source's
rows; the reader that is made from the format's page alone has the same.
"""

import contextlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Final

import psycopg

from gaussdecode.cli import main
from gaussdecode.errors import EX_CONFIG
from gaussdecode.spark.merge.options import Summary
from kit import targets
from kit.catalogcases import CASES, Case, make_tables, text_of
from kit.daemon import Daemon, wait_until
from kit.postgres import Database, Session
from kit.shards import ShardsDaemon
from kit.stranger import Reader

_LATE: Final = {
    "renamed",
    "dropped",
    "part_all_and_one",
}  # one is a documented limit, the others end a table
_CASES_EACH: Final = 14


class CatalogHistory:
    """Of one source, or of several.

    Args:
        databases: by name of the source.
        daemon: of them.
        seed: of everything that is chosen.
        reads_again: the daemon has ``on-suspect: snapshot``.

    Attributes:
        equal: how often a table was compared and was equal.
        stopped: how often one stood still.
    """

    def __init__(
        self,
        databases: Mapping[str, Database],
        daemon: Daemon,
        seed: int,
        *,
        reads_again: bool,
    ) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self._databases = list(databases.values())
        self._sources = databases
        self._daemon = daemon
        self._reads_again = reads_again
        majors = [database.server.major for database in self._databases]
        usable = {
            name: case
            for name, case in CASES.items()
            if name not in _LATE
            and case.since <= min(majors)
            and (len(databases) == 1 or "INSERT" not in case.ddl)  # a key is on one of them
        }
        self._cases = list(usable.values())
        chosen = self.rng.sample(sorted(usable), _CASES_EACH)
        self._tables: dict[str, Case] = {}
        self._last = 0
        self.done: list[str] = []
        self.equal = self.stopped = 0
        for database in self._databases:
            database.execute("CREATE TABLE public.witness (id int4 PRIMARY KEY)")
            self._tables = make_tables(database, chosen)
            for title in self._tables:
                self._columns_made_anew(database, title)

    def _columns_made_anew(self, database: Database, title: str) -> None:
        """Some tables have attribute numbers with holes."""
        if self.rng.random() < 0.3:
            self._do(database, f"ALTER TABLE {title} ADD junk int; ALTER TABLE {title} DROP junk")

    def insert_all(self) -> None:
        """First rows."""
        for database in self._databases:
            for title, case in self._tables.items():
                self._do(database, self._inserted(title, case, 9))

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
                self._stop()
                self._more(title, case)
                self._daemon.start()
            elif dice < 0.44:
                self._server_crashes(title, case)
            else:
                self._do(self._any(), self._rows(title, case))

    def _stop(self) -> None:
        self._daemon.wait_for_state("streaming")
        assert self._daemon.stop() == 0

    def _more(self, title: str, case: Case) -> None:
        for _ in range(self.rng.randint(1, 4)):
            self._command(title, case)
            self._do(self._any(), self._rows(title, case))

    def _server_crashes(self, title: str, case: Case) -> None:
        """A server crashes, and sends again what was confirmed since it last wrote that to its disk.

        An older state of the slot must not be put back: rows of the catalogue that it needs may be gone.
        """
        database = self._any()
        self._more(title, case)
        self._catch_up()
        database.server.kill9()
        self._daemon.stop()
        database.server.start()
        self.done.append(f"{self._databases.index(database)}: crashes")
        self._daemon.start()

    def restore_one(self) -> None:
        """Restore a source to the past: nothing more lands, and the daemon says why."""
        database = self._any()
        self._stop()
        saved = database.server.save_files()
        self._daemon.start()
        database.execute("INSERT INTO public.witness VALUES (1)")
        self._catch_up()
        self._stop()
        before = self._daemon.entries()
        database.server.put_back(saved)
        database.execute("INSERT INTO public.witness VALUES (2)")
        assert self._daemon.start().wait() == EX_CONFIG
        assert "restored to the past" in self._daemon.log_tail()
        assert self._daemon.entries() == before

    def _any(self) -> Database:
        return self.rng.choice(self._databases)

    def _is_whole(self) -> bool:
        """Whether all of the tables that suspect entries name were read again, of those that are sent.

        Partitions may have gone, and a table may have stayed unlogged.
        """
        with contextlib.redirect_stdout(io.StringIO()) as text:
            main(["gaps", "--unaccepted", "--json", str(self._daemon.root)])
        ours = {f"public.{title}" for title in self._tables}
        sent = {
            source: {
                f"public.{title}"
                for (title,) in database.execute(
                    "SELECT tablename FROM pg_publication_tables WHERE schemaname = 'public'"
                )
            }
            for source, database in self._sources.items()
        }
        found = map(json.loads, text.getvalue().splitlines())
        return not any(
            ours & sent[one.get("source", "")] & set(one["not_read_again"]) for one in found
        )

    def _command(self, title: str, case: Case) -> None:
        """The case's own, or one of another case with the same table; alone or with rows.

        Of several sources on one, or on one after the other.
        """
        other = self.rng.choice([case, *(c for c in self._cases if c.setup == case.setup)])
        ddl = text_of(other.ddl, title)
        together = not other.is_alone and self.rng.random() < 0.5
        everywhere = self._databases if self.rng.random() < 0.7 else [self._any()]
        for database in self.rng.sample(everywhere, len(everywhere)):
            if together:
                first, last = self._rows(title, case), self._rows(title, case)
                self._do(database, f"BEGIN; {first}; {ddl}; {last}; COMMIT")
                continue
            for statement in ddl.split(";"):
                self._do(database, statement)

    def _rows(self, title: str, case: Case) -> str:
        dice = self.rng.random()
        if dice < 0.4:
            return self._inserted(title, case, self.rng.randint(1, 5))
        rest = self.rng.randrange(4)
        if dice < 0.7:
            return f"UPDATE {title} SET id = id WHERE id % 4 = {rest}"
        if dice < 0.95:
            return f"DELETE FROM {title} WHERE id % 7 = {rest}"
        return f"TRUNCATE {title}"

    def _inserted(self, title: str, case: Case, count: int) -> str:
        """New keys, which no other source has."""
        first, self._last = self._last + 1, self._last + count
        rows = text_of(case.rows, title)
        return rows.replace("generate_series(1, 9)", f"generate_series({first}, {self._last})")

    def _do(self, database: Database, text: str) -> None:
        """Run something; what does not go after what was done before is left."""
        with database.connect() as session, contextlib.suppress(psycopg.Error):
            _run(session, text)
            self.done.append(f"{self._databases.index(database)}: {text}")

    def compare(self, target: Path) -> None:
        """Names of columns are learned with rows: one of each table is touched before."""
        for database in self._databases:
            for title in self._tables:
                touched = f"WHERE id = (SELECT min(id) FROM {title})"
                self._do(database, f"UPDATE {title} SET id = id {touched}")
        self._catch_up()
        self._catch_up()
        if self._reads_again:
            wait_until(self._is_whole, "tables that are suspect are read again")
        summary = targets.apply_local(self._daemon.root, target)
        if self._reads_again:
            self._leave_unlogged()
        found = self._found(summary, target)
        assert found.different == {}, (found.different, found.stopped, self.done[-60:])
        self.equal += len(found.equal)
        self.stopped += len(found.stopped)

    def _leave_unlogged(self) -> None:
        """Forget tables with an unlogged partition: what becomes of its rows is said only once."""
        for database in self._databases:
            for (title,) in database.execute(
                "SELECT pg_partition_root(i.inhrelid)::regclass::text FROM pg_inherits i JOIN pg_class c "
                "ON c.oid = i.inhrelid WHERE c.relpersistence = 'u'"
            ):
                self._tables.pop(title, None)

    def _catch_up(self) -> None:
        if isinstance(self._daemon, ShardsDaemon):
            self._daemon.catch_up_all()
        else:
            self._daemon.catch_up()

    def _found(self, summary: Summary, target: Path) -> targets.Found:
        if len(self._databases) > 1:
            titles = [f"public.{title}" for title in self._tables]
            return targets.compare_sources(self._sources, summary, target, titles)
        (database,) = self._databases
        found = targets.compare(
            database,
            summary,
            target,
            lambda title: title.removeprefix("public.") in self._tables,
        )
        targets.compare_stranger(database, Reader(self._daemon.root).advance(), found)
        return found


def _run(session: Session, text: str) -> None:
    session.execute("SET lock_timeout = '20s'")
    session.execute(text.encode())
