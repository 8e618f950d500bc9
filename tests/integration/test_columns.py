"""Every pair of changes to a table's columns, in every state of the daemon: right, or stopped."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from kit.daemon import Daemon
from kit.postgres import Database

from gaussdecode.spark.apply import Options, apply_with
from gaussdecode.spark.log.conversion import conform
from gaussdecode.spark.merge.engine import LocalEngine
from gaussdecode.spark.target.deletion_vectors import current_rows
from gaussdecode.spark.target.store import Target

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]

# {t}: the table, {n}: 1 or 2. A column is there, or the pair is left out.
_CHANGES = {
    "add": "ALTER TABLE {t} ADD c{n} int",
    "drop": "ALTER TABLE {t} DROP b",
    "rename": "ALTER TABLE {t} RENAME a TO r{n}",
    "swap": "ALTER TABLE {t} RENAME a TO x; ALTER TABLE {t} RENAME b TO a;"
            "ALTER TABLE {t} RENAME x TO b",
    "replace": "ALTER TABLE {t} ADD y{n} int; UPDATE {t} SET y{n} = a + 1;"
               "ALTER TABLE {t} RENAME a TO z{n}; ALTER TABLE {t} RENAME y{n} TO a",
    "again": "ALTER TABLE {t} DROP b; ALTER TABLE {t} ADD b int",
    "type": "ALTER TABLE {t} ALTER b TYPE int8",
    "default": "ALTER TABLE {t} ALTER b SET DEFAULT 7",
    "full": "ALTER TABLE {t} REPLICA IDENTITY FULL",
    "generated": "ALTER TABLE {t} ADD g{n} int GENERATED ALWAYS AS (id * 2) STORED",
}  # fmt: skip
_NEEDS = {"drop": "b", "rename": "a", "swap": "ab", "replace": "a", "again": "b", "type": "b",
          "default": "b"}  # fmt: skip
_TAKES = {"drop": "b", "rename": "a"}
PAIRS = [
    (first, second)
    for first, second in itertools.product(_CHANGES, repeat=2)
    if _TAKES.get(first, " ") not in _NEEDS.get(second, "")
    # A server of 18 refuses changes of rows whose whole identity cannot be sent.
    and {first, second} != {"full", "generated"}
]


def name_of(pair: tuple[str, str]) -> str:
    """The table on which a pair is tried."""
    return f"{pair[0]}_{pair[1]}"


def change(database: Database, step: int) -> None:
    """Change every table, and then rows of it."""
    for pair in PAIRS:
        table = name_of(pair)
        text = _CHANGES[pair[step]].format(t=table, n=step + 1)
        fresh = 10 * (step + 1)
        database.execute(f"BEGIN; {text}; COMMIT")
        columns = [name for name, _ in columns_of(database, table) if name != "id"]
        values = ", ".join(str(fresh + index) for index in range(len(columns)))
        sets = ", ".join(f"{name} = {fresh + index + 5}" for index, name in enumerate(columns))
        database.execute(
            f"INSERT INTO {table} (id, {', '.join(columns)}) VALUES ({fresh}, {values});"
            f"UPDATE {table} SET {sets} WHERE id = 1"
        )


def columns_of(database: Database, table: str) -> list[tuple[str, int]]:
    """Names and numbers of the columns that are not generated."""
    return [
        (str(name), int(number))
        for name, number in database.execute(
            "SELECT attname::text, attnum FROM pg_attribute WHERE attnum > 0 AND NOT attisdropped "
            f"AND attgenerated = '' AND attrelid = '{table}'::regclass ORDER BY attnum"
        )
    ]


def applied(store: Target, table: str, columns: list[str]) -> list[tuple[object, ...]]:
    """Rows of a table in the target."""
    database = store.database()
    assert database is not None
    version = store.version(f"public.{table}", database.tables[f"public.{table}"])
    wanted = store.schema(f"public.{table}", version.schema_id)
    assert sorted(wanted.names) == sorted(columns), table
    found = []
    for file in version.current:
        rows: pa.Table = current_rows(store.table_root(f"public.{table}"), file)
        held = store.schema(f"public.{table}", file.schema_id)
        found += conform(rows, held, wanted).select(columns).to_pylist()
    return sorted(tuple(row.values()) for row in found)


def stir(daemon: Daemon, database: Database, scenario: str) -> None:
    """What happens to the daemon between two changes."""
    if scenario == "down":
        return
    daemon.catch_up()
    if scenario == "restarted":
        assert daemon.stop() == 0
        daemon.start()
        daemon.wait_for_state("streaming")
    if scenario == "cut":
        database.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = "
            "current_database() AND pid <> pg_backend_pid()"
        )


@pytest.mark.parametrize(
    ("postgres", "scenario"),
    [(15, "streaming"), (18, "restarted"), (15, "cut"), (18, "down")],
    indirect=["postgres"],
)
def test_every_pair(
    database: Database, make_daemon: MakeDaemon, tmp_path: Path, scenario: str
) -> None:
    """The target has the source's rows; only tables with a column made anew, or of another type, may stop."""
    tables = [name_of(pair) for pair in PAIRS]
    for table in tables:
        database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, a int, b int)")
    database.create_slot()
    for table in tables:
        database.execute(f"INSERT INTO {table} VALUES (1, 1, 2), (2, 3, 4)")
    with make_daemon(database) as daemon:
        daemon.catch_up()
        if scenario == "down":
            assert daemon.stop() == 0
        for step in range(2):
            change(database, step)
            stir(daemon, database, scenario)
        if scenario == "down":
            daemon.start()
        daemon.catch_up()
        assert daemon.stop() == 0
    summary = apply_with(LocalEngine(), daemon.root, tmp_path / "target", Options())
    store = Target(tmp_path / "target")
    unknown = {title.removeprefix("public.") for title in summary.stopped}
    for table in sorted(set(tables) - unknown):
        columns = [name for name, _ in columns_of(database, table)]
        wanted = database.execute(f"SELECT {', '.join(columns)} FROM {table}")
        assert applied(store, table, columns) == sorted(wanted), table
    print(scenario, len(unknown), "of", len(tables), "unknown:", *sorted(unknown))
    # Beside them: where a name went from hand to hand while nobody read, where a new type had the
    # table written anew, perhaps with USING, or on a server of 18 whose publications may have sent
    # generated columns a moment ago.
    doubtful = {
        name_of(pair) for pair in PAIRS if {"again", "replace", "type", "generated"} & {*pair}
    }
    assert unknown <= doubtful, {t: summary.stopped["public." + t] for t in unknown - doubtful}
