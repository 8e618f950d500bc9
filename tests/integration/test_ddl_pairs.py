"""Pairs of DDL commands on a table whose commands are recorded: a target has the source's rows, or says so.

A pair is two commands of `kit.catalogcases`, each followed by changes of rows. Pairs are tried while the daemon
streams, is behind or down, with all of a pair in one transaction, with such a transaction streamed, and
with a savepoint that is rolled back between both. ``GAUSSDECODE_PAIRS`` is how many a run tries. In one of these
ways some pairs are also compared in Iceberg, as pyiceberg reads them.
"""

import contextlib
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Final

import psycopg
import pyarrow as pa
import pytest
from kit import landing, oracle, targets
from kit.catalogcases import CASES, Case, text_of
from kit.daemon import Daemon
from kit.icebergcatalog import in_a_file
from kit.postgres import Database, run
from pyiceberg.catalog import Catalog

from gaussdecode.land.names import table_directory
from gaussdecode.model.title import split_title
from gaussdecode.source.postgresql.ddl import install_sql
from gaussdecode.spark.target.formats import ICEBERG
from gaussdecode.spark.target.store import Target

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]
Pair = tuple[Case, Case]

_PAIRS: Final = int(os.environ.get("GAUSSDECODE_PAIRS", "20"))
_SEED: Final = int(os.environ.get("GAUSSDECODE_SEEDS", "1").partition("-")[0])
_IN_ICEBERG: Final = 6
# Another table under the name, or none.
_ANOTHER: Final = {"renamed", "dropped", "anew", "anew_with_rows", "swapped"}
# What docs/guarantees.md says is not noticed: a partition that is emptied in the transaction that emptied all.
_UNNOTICED: Final = {"part_all_and_one"}
_ALONE: Final = ("streaming", "behind", "down")


def choose(rng: Random, major: int, *, are_alone: bool) -> dict[str, tuple[str, str]]:
    """Names of the cases of each pair, by table. Both have the same table to begin with."""
    alike: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, case in CASES.items():
        if case.since <= major and name not in _UNNOTICED and (are_alone or not case.is_alone):
            alike[case.setup, case.rows].append(name)
    pairs = [(a, b) for names in alike.values() for a in names for b in names]
    chosen = rng.sample(pairs, min(_PAIRS, len(pairs)))
    return {f"p{number}": pair for number, pair in enumerate(chosen)}


def make_tables(database: Database, pairs: dict[str, tuple[str, str]]) -> None:
    """Make the tables; all are published, partitioned ones by their root."""
    name = database.publication
    database.execute(
        f'DROP PUBLICATION "{name}"; CREATE SCHEMA s;'
        f'CREATE PUBLICATION "{name}" FOR ALL TABLES WITH (publish_via_partition_root)'
    )
    with database.connect() as session:
        for title, (first, _) in pairs.items():
            run(session, text_of(CASES[first].setup, title))


def statements_of(title: str, pair: Sequence[str], number: int) -> list[str]:
    """Both commands, each with changes of rows after it."""
    found: list[str] = []
    for position, name in enumerate(pair):
        case = CASES[name]
        found += text_of(case.ddl, title).split(";")
        found.append(text_of(case.after, title).replace("51", str(1000 + 10 * number + position)))
        found.append(f"DELETE FROM {title} WHERE id % 5 = {position}")
    return found


def do(database: Database, title: str, pair: Sequence[str], number: int, mode: str) -> None:
    """Carry a pair out. What does not go after what was done before is left."""
    parts = statements_of(title, pair, number)
    with database.connect() as session:
        run(session, "SET lock_timeout = '5s'")
        if mode in _ALONE:
            for part in parts:
                with contextlib.suppress(psycopg.Error):
                    run(session, part)
            return
        run(session, "BEGIN")
        for part in parts:
            run(session, "SAVEPOINT a")
            try:
                run(session, part)
            except psycopg.Error:
                run(session, "ROLLBACK TO a")
                continue
            if mode == "savepoint" and hash_of(part) % 3 == 0:
                run(session, "ROLLBACK TO a")
        run(session, "COMMIT")


def hash_of(text: str) -> int:
    """The same in each run."""
    return sum(text.encode())


def compare_iceberg(
    database: Database, root: Path, directory: Path, titles: list[str], catalog: Catalog
) -> None:
    """Assert that tables of a catalog have the source's rows, and the target's columns and types."""
    names = {title: table_directory(*split_title(title)) for title in titles}
    place = directory / "iceberg"
    targets.apply_local(
        root, place, format=ICEBERG, catalog="lake.cdc", tables=sorted(names.values())
    )
    store = Target(place)
    with database.connect() as session:
        session.execute(oracle.OUTPUT_SETTINGS)
        for title, name in names.items():
            version = store.newest(name)
            assert version is not None
            schema = store.schema(name, version.schema_id)
            found = catalog.load_table(("cdc", name.replace(".", "_"))).scan().to_arrow()
            assert _types(found.schema) == _types(schema.arrow()), title
            rows = [{"gd_unchanged": None, **row} for row in found.to_pylist()]
            state = targets.state_of(schema, rows)
            oracle.compare(
                split_title(title), state, targets.source_rows(session, split_title(title), schema)
            )


def _types(schema: pa.Schema) -> dict[str, str]:
    """Types of columns by name; Iceberg has no short integers, and pyiceberg reads large texts."""
    own = (field for field in schema if not field.name.startswith("gd_"))
    return {of.name: str(of.type).replace("large_", "").replace("int16", "int32") for of in own}


@pytest.mark.parametrize(
    ("postgres", "mode"),
    [
        (14, "streaming"),
        (15, "behind"),
        (16, "streamed"),
        (17, "savepoint"),
        (18, "down"),
        (18, "transaction"),
    ],
    indirect=["postgres"],
)
def test_pairs(
    database: Database, make_daemon: MakeDaemon, tmp_path: Path, mode: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """No table of a target has other rows, columns or types than its source, unless it stands still."""
    major = database.server.major
    rng = Random(f"{_SEED} {mode} {major}")
    pairs = choose(rng, major, are_alone=mode in _ALONE)
    make_tables(database, pairs)
    database.execute(install_sql())
    database.create_slot()
    config = {}
    if mode == "streamed":
        database.execute(f'ALTER DATABASE "{database.name}" SET logical_decoding_work_mem = 64')
        database.execute(
            f'ALTER DATABASE "{database.name}" SET debug_logical_replication_streaming = immediate'
        )
        config = {"source": {"streaming": "on"}}
    with make_daemon(database, config=config) as daemon:
        for title, (first, _) in pairs.items():
            database.execute(text_of(CASES[first].rows, title))
        daemon.catch_up()
        if mode in {"behind", "down"}:
            assert daemon.stop() == 0
        for number, (title, pair) in enumerate(pairs.items()):
            do(database, title, pair, number, mode)
            if mode == "down" and number == len(pairs) // 2:
                daemon.start()
                daemon.catch_up()
                assert daemon.stop() == 0
        if mode in {"behind", "down"}:
            daemon.start()
        daemon.catch_up()
        daemon.catch_up()  # what a TRUNCATE may explain is judged when the stream has passed
        assert daemon.stop() == 0
    target = tmp_path / "target"
    summary = targets.apply_local(daemon.root, target)
    found = targets.compare(
        database, summary, target, lambda title: title.removeprefix("public.") in pairs
    )
    told = {
        title
        for entry in landing.read_entries(daemon.root)
        if entry["kind"] == "suspect"
        for title in entry["extra"]["tables"]
    }
    known = Target(target).tables()
    print(mode, len(found.equal), "equal,", len(found.stopped), "stopped")
    assert not found.different, {t: (pairs[t[7:]], why) for t, why in found.different.items()}
    avoidable = {
        title: (pairs[title[7:]], why)
        for title, why in found.stopped.items()
        if title[7:] in pairs and title not in told and not _ANOTHER & set(pairs[title[7:]])
    }
    assert not avoidable
    if mode == "transaction":
        held = {title for title in found.equal if table_directory(*split_title(title)) in known}
        some = rng.sample(sorted(held), min(_IN_ICEBERG, len(held)))
        compare_iceberg(database, daemon.root, tmp_path, some, in_a_file(monkeypatch, tmp_path))


# Each is one transaction.
STEPS: Final = (
    "ALTER TABLE a RENAME TO b; INSERT INTO b VALUES (2)",
    "CREATE TABLE a (id int PRIMARY KEY); INSERT INTO a VALUES (10); INSERT INTO b VALUES (3)",
    """ALTER TABLE a RENAME TO x; INSERT INTO x VALUES (11); ALTER TABLE b RENAME TO a;
    ALTER TABLE x RENAME TO b; INSERT INTO a VALUES (4); UPDATE b SET id = 12 WHERE id = 10""",
    "ALTER TABLE a SET SCHEMA s; ALTER TABLE a_part RENAME TO c; INSERT INTO s.a VALUES (5); INSERT INTO c VALUES (2)",
    "ALTER TABLE s.a ADD d text DEFAULT 'x'; ALTER SCHEMA s RENAME TO r; INSERT INTO r.a VALUES (6); DELETE FROM b",
    """ALTER TABLE r.a SET SCHEMA public; INSERT INTO a VALUES (7);
    INSERT INTO b SELECT generate_series(20, 25); TRUNCATE c; INSERT INTO c VALUES (3)""",
)  # fmt: skip


@pytest.mark.parametrize("postgres", [15], indirect=True)
@pytest.mark.parametrize("mode", ["streaming", "behind"])
def test_renamed_tables_go_on_in_their_directories(
    database: Database, make_daemon: MakeDaemon, tmp_path: Path, mode: str
) -> None:
    """Names change and are exchanged while rows come; daemon and apply go on after each step, or once."""
    name, target = database.publication, tmp_path / "target"
    database.execute(
        f'DROP PUBLICATION "{name}"; CREATE SCHEMA s;'
        f'CREATE PUBLICATION "{name}" FOR ALL TABLES WITH (publish_via_partition_root);'
        "CREATE TABLE a (id int PRIMARY KEY);"
        "CREATE TABLE a_part (id int PRIMARY KEY) PARTITION BY RANGE (id);"
        "CREATE TABLE a_low PARTITION OF a_part FOR VALUES FROM (0) TO (9)"
    )
    oid = int(database.execute("SELECT 'a'::regclass::oid")[0][0])
    database.execute(install_sql())
    database.create_slot()
    with make_daemon(database) as daemon:
        database.execute("INSERT INTO a VALUES (1); INSERT INTO a_part VALUES (1)")
        daemon.catch_up()
        for number, step in enumerate(STEPS):
            if mode == "streaming":
                daemon.catch_up()
                targets.apply_local(daemon.root, target, on_ddl={"rename-table": "apply"})
            if number == 3:
                daemon.kill9()
                daemon.start()
            database.execute(step)
        daemon.catch_up()
        daemon.catch_up()
        assert daemon.stop() == 0
    summary = targets.apply_local(daemon.root, target, on_ddl={"rename-table": "apply"})
    assert not summary.stopped
    found = targets.compare(database, summary, target)
    assert not found.different
    assert {"public.a", "public.b", "public.c"} <= set(found.equal)
    store = Target(target)
    assert store.find_table("public.a") == "public.a"
    assert store.find_table("public.c") == "public.a_part"
    other = store.find_table("public.b")
    assert other.startswith("public.a_")
    assert not other.endswith(str(oid))
