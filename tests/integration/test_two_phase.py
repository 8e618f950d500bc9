"""Prepared transactions that are taken at their PREPARE land as those that come at their commit."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from integration.test_streaming import rows_of, stream_early
from kit.daemon import Daemon
from kit.postgres import Database, run

from gaussdecode.land.entry import parse_entry
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import EntryKind

pytestmark = pytest.mark.integration

TABLES = 4


@pytest.fixture
def preparing(database: Database) -> Iterator[Database]:
    """A database in which no prepared transaction is left behind."""
    yield database
    for (gid,) in database.execute(
        "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
    ):
        database.execute(f"ROLLBACK PREPARED '{gid}'")


@dataclasses.dataclass
class Load:
    """Random transactions over a few tables, of which some are prepared and end much later.

    Each prepared one has a table of its own while it waits: its locks last as long.
    """

    database: Database
    rng: Random
    waiting: dict[int, str] = dataclasses.field(default_factory=dict)
    count: int = 0

    def create(self) -> None:
        """Make the tables."""
        self.database.execute("CREATE SCHEMA kit")
        for table in range(TABLES):
            self.database.execute(
                f"CREATE TABLE kit.t{table} (id int8 PRIMARY KEY, note text, n numeric(9, 2))"
            )

    def step(self) -> None:
        """Begin and end one, or end one that was prepared."""
        free = [table for table in range(TABLES) if table not in self.waiting]
        if self.waiting and (not free or self.rng.random() < 0.3):
            self.end(self.rng.choice(sorted(self.waiting)))
        else:
            self.begin(self.rng.choice(free))

    def begin(self, table: int) -> None:
        """A transaction of one table; perhaps it is prepared."""
        self.count += 1
        with self.database.connect() as session:
            run(session, "BEGIN")
            for _ in range(self.rng.randint(0, 3)):
                self.change(session, f"kit.t{table}")
            if self.rng.random() < 0.6:
                gid = f"it's \u00fc {self.count}"
                run(session, "PREPARE TRANSACTION '" + gid.replace("'", "''") + "'")
                self.waiting[table] = gid
            else:
                run(session, "COMMIT")

    def change(self, session: Any, table: str) -> None:
        """One statement, perhaps in a savepoint that is rolled back."""
        is_undone = self.rng.random() < 0.3
        if is_undone:
            run(session, "SAVEPOINT s")
        kind = self.rng.choice("IIIUUDTAM" if self.rng.random() < 0.9 else "B")
        if kind in "IB":
            size = 2000 if kind == "B" else self.rng.randint(1, 5)
            fill = (
                f"INSERT INTO {table} (id, note, n) SELECT %s::int8 * 10000 + g, 'n' || g, g / 7.0 "
                "FROM generate_series(1, %s) g ON CONFLICT DO NOTHING"
            )
            run(session, fill, (self.rng.randint(1, 10**6), size))
        elif kind == "U":
            run(session, f"UPDATE {table} SET note = %s WHERE id %% 3 = 1", (str(self.count),))
        elif kind == "D":
            run(session, f"DELETE FROM {table} WHERE id %% 5 = %s", (self.rng.randint(0, 4),))
        elif kind == "T":
            run(session, f"TRUNCATE {table}")
        elif kind == "M":
            run(session, "SELECT pg_logical_emit_message(true, 'kit', %s)", (str(self.count),))
        else:
            run(
                session,
                f"ALTER TABLE {table} ADD COLUMN c{self.count}_{self.rng.randint(0, 9**9)} int4 DEFAULT 3",
            )
        if is_undone:
            run(session, "ROLLBACK TO SAVEPOINT s")

    def end(self, table: int) -> None:
        """Commit or roll back what waits."""
        gid = self.waiting.pop(table).replace("'", "''")
        how = "ROLLBACK" if self.rng.random() < 0.3 else "COMMIT"
        self.database.execute(f"{how} PREPARED '{gid}'")


def entries_of(root: Path) -> list[CommitEntry]:
    """All entries that are files of their own, in order."""
    paths = sorted((root / "commits").glob("[0-9]*.json"))
    return [parse_entry(path.read_bytes(), path.name) for path in paths]


def beside(daemon: Daemon, directory: Path, **source: object) -> Daemon:
    """A second daemon, of a slot of its own at the same position."""
    slot = f"{daemon.database.slot}_2"
    daemon.database.copy_slot(slot)
    directory.mkdir()
    other = Daemon(daemon.database, directory, config={"source": {"two-phase": True, **source}})
    other.write_config_value("slot", slot)
    return other


@pytest.mark.parametrize(
    ("streaming", "seed", "kills"), [("off", 1, 0), ("off", 2, 5), ("parallel", 3, 5)]
)
def test_prepared_equals_whole(
    preparing: Database,
    make_daemon: Callable[..., Daemon],
    tmp_path: Path,
    streaming: str,
    seed: int,
    kills: int,
) -> None:
    """Savepoints, DDL, truncates, restarts between PREPARE and its end: row for row."""
    database = preparing
    load = Load(database, Random(seed))
    load.create()
    database.create_slot()
    if streaming != "off":
        stream_early(database)
    with make_daemon(database) as whole:
        prepared = beside(whole, tmp_path / "prepared", streaming=streaming)
        steps = 120
        deaths = set(load.rng.sample(range(10, steps), kills))
        with prepared:
            for step in range(steps):
                load.step()
                if step in deaths:
                    if load.rng.random() < 0.7:
                        prepared.catch_up()
                    prepared.kill9()
                    prepared.start()
            while not load.waiting:
                load.step()
            prepared.catch_up()
            while load.waiting:
                load.end(min(load.waiting))
            for daemon in (whole, prepared):
                daemon.catch_up()
            assert prepared.stop() == 0
            assert whole.stop() == 0
    assert rows_of(prepared.root) == rows_of(whole.root)
    kinds = [entry.kind for entry in entries_of(prepared.root)]
    assert EntryKind.PREPARED in kinds
    last = entries_of(prepared.root)
    named = {file.path for entry in last for file in entry.prepared}
    assert named == {path for entry in last for path in entry.ended}
