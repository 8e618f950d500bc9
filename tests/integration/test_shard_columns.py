"""Columns of one table on several sources: each has numbers of its own, and what cannot be one table stops.

Real servers, and tables that the local engine makes of what landed, compared with what the servers hold.
"""

import itertools
import os
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from kit import stranger
from kit.applied import held_by_source, in_order, rows_by_source
from kit.gausscluster import GaussCluster
from kit.gaussseveral import several
from kit.postgres import Database, Postgres
from kit.shards import ShardsDaemon, prepared

from gaussdecode.errors import ConfigError
from gaussdecode.spark.apply import Options, apply_with
from gaussdecode.spark.log.landing import Landing, Point
from gaussdecode.spark.merge.column_identity import question_of
from gaussdecode.spark.merge.engine import LocalEngine
from gaussdecode.spark.merge.options import Summary
from gaussdecode.spark.target.store import Target

pytestmark = pytest.mark.integration
Shards = dict[str, Database]
_numbers = itertools.count()


MAJORS: Final = {"east": 15, "west": 16, "north": 15}


@pytest.fixture(params=[2])
def shards(servers: Callable[[int], Postgres], request: pytest.FixtureRequest) -> Iterator[Shards]:
    """Databases on servers of two majors; two of them unless a test wants more."""
    name = f"columns_{os.getpid()}_{next(_numbers)}"
    made = {
        source: Database(servers(major), f"{name}_{source}")
        for source, major in itertools.islice(MAJORS.items(), request.param)
    }
    prepared(made)
    yield made
    for shard in made.values():
        shard.drop()


def applied(root: Path, target: Path, to: int | None = None) -> Summary:
    """Make tables of what landed, up to an entry."""
    options = Options(history=True, accept_hidden_truncates=True)
    return apply_with(LocalEngine(), root, target, options, to=None if to is None else Point(n=to))


def applied_in_steps(root: Path, target: Path) -> int:
    """Make tables entry by entry, see that at once gives the same, and give how often one stood still."""
    stops = 0
    for n in range(Landing(root).last_n + 1):
        steps = applied(root, target / "steps", n)
        once = applied(root, target / f"at{n}", n)
        assert steps.stopped == once.stopped
        stops += len(steps.stopped)
        if once.tables:
            same = [rows_by_source(target / name, "public.t") for name in ("steps", f"at{n}")]
            assert same[0] == same[1]
    assert not steps.stopped
    return stops


def on_all(shards: Shards, *statements: str) -> None:
    """Run statements on each."""
    for shard in shards.values():
        for statement in statements:
            shard.execute(statement)


def slots(shards: Shards) -> None:
    """Make the slot of each; tables that were there are settled before them."""
    for shard in shards.values():
        shard.create_slot()


def test_columns_are_matched_by_name_between_sources(shards: Shards, tmp_path: Path) -> None:
    """One was dropped on a shard once, others were made in another order, one is not there yet."""
    shards["east"].execute("CREATE TABLE public.t (id int4 PRIMARY KEY, gone text, a text, b text)")
    shards["east"].execute("ALTER TABLE public.t DROP COLUMN gone")
    shards["west"].execute(
        "CREATE TABLE public.t (b text, id int4 PRIMARY KEY, a text, more numeric(9,2))"
    )
    slots(shards)
    with ShardsDaemon(shards, tmp_path) as daemon:
        for number, shard in enumerate(shards.values()):
            shard.execute(f"INSERT INTO public.t (id, a, b) VALUES ({number}, 'a{number}', 'b')")
        shards["west"].execute("UPDATE public.t SET more = 1.25, a = 'a-w!' WHERE id = 1")
        daemon.catch_up_all()
        shards["east"].execute("UPDATE public.t SET a = 'a-e1!' WHERE id = 0")
        daemon.catch_up_all()
        assert daemon.stop() == 0
    summary = applied(daemon.root, tmp_path / "target")
    assert not summary.stopped
    assert rows_by_source(tmp_path / "target", "public.t") == held_by_source(shards, "public.t")


def with_table(shards: Shards, columns: str, **others: str) -> None:
    """Make a table and the slot on each shard; with other columns where they are named."""
    for name, shard in shards.items():
        shard.execute(f"CREATE TABLE public.t ({others.get(name, columns)})")
    slots(shards)


@pytest.mark.parametrize(
    ("east", "west", "said"),
    [
        (
            "id int4 PRIMARY KEY, a text",
            "id int4 PRIMARY KEY, a int4",
            r"column 'a' has types that no column of one table holds alike: string on source east, int32 on source",
        ),
        (
            "id int4 PRIMARY KEY, a numeric(9,2)",
            "id int4 PRIMARY KEY, a numeric(9,3)",
            r"decimal128\(9, 2\) on source east, decimal128\(9, 3\) on source west",
        ),
        (
            "id int4 PRIMARY KEY, a text",
            "id int4, a text",
            r"rows of source east are told apart by key \(id\), those of source west by no key. Give the table",
        ),
        (
            "id int4 PRIMARY KEY, a text",
            "id int4, a text PRIMARY KEY",
            r"source east are told apart by key \(id\), those of source west by key \(a\)",
        ),
    ],
)
def test_what_cannot_be_one_table_stops(
    shards: Shards, tmp_path: Path, east: str, west: str, said: str
) -> None:
    """It says which sources, columns, types and keys; the tables beside it go on."""
    with_table(shards, east, west=west)
    on_all(shards, "CREATE TABLE public.beside (id int4 PRIMARY KEY)")
    with ShardsDaemon(shards, tmp_path) as daemon:
        on_all(
            shards, "INSERT INTO public.t VALUES (1, '1')", "INSERT INTO public.beside VALUES (1)"
        )
        daemon.catch_up_all()
        assert daemon.stop() == 0
    summary = applied(daemon.root, tmp_path / "target")
    (why,) = summary.stopped.values()
    assert re.search(said, why), why
    assert list(summary.stopped) == ["public.t"]
    with pytest.raises(ConfigError, match="declaring columns does not help"):
        question_of(Landing(daemon.root), Target(tmp_path / "target"), "public.t")
    assert rows_by_source(tmp_path / "target", "public.beside") == held_by_source(
        shards, "public.beside"
    )


def test_whole_numbers_are_held_in_the_widest(shards: Shards, tmp_path: Path) -> None:
    """Of the key too."""
    with_table(shards, "id int4 PRIMARY KEY, a int2", west="a int8, id int8 PRIMARY KEY, gone int4")
    with ShardsDaemon(shards, tmp_path) as daemon:
        shards["east"].execute("INSERT INTO public.t (id, a) VALUES (1, 32767), (2, 5)")
        shards["west"].execute(f"INSERT INTO public.t (id, a) VALUES ({2**40}, {2**50}), (2, 6)")
        shards["west"].execute("DELETE FROM public.t WHERE id = 2")
        daemon.catch_up_all()
        assert daemon.stop() == 0
    assert not applied(daemon.root, tmp_path / "target").stopped
    assert rows_by_source(tmp_path / "target", "public.t") == held_by_source(shards, "public.t")


def test_a_rename_on_one_source_first(shards: Shards, tmp_path: Path) -> None:
    """The table stands still until the others have it, says so, and has all values then."""
    with_table(shards, "id int4 PRIMARY KEY, a text")
    with ShardsDaemon(shards, tmp_path) as daemon:
        on_all(shards, "INSERT INTO public.t VALUES (1, 'one'), (2, 'two')")
        daemon.catch_up_all()
        shards["west"].execute("ALTER TABLE public.t RENAME a TO b")
        on_all(shards, "UPDATE public.t SET id = 3 WHERE id = 2")
        daemon.catch_up_all()
        summary = applied(daemon.root, tmp_path / "target")
        (why,) = summary.stopped.values()
        assert "column 'a' was renamed on some sources only: it is 'a' on source east" in why
        shards["east"].execute("ALTER TABLE public.t RENAME a TO b")
        shards["east"].execute("INSERT INTO public.t VALUES (4, 'four')")
        daemon.catch_up_all()
        assert daemon.stop() == 0
    assert not applied(daemon.root, tmp_path / "target").stopped
    assert rows_by_source(tmp_path / "target", "public.t") == held_by_source(shards, "public.t")


def changes_of_columns(chance: random.Random, count: int) -> list[str]:
    """What follows ALTER TABLE; each may follow those before it."""
    there = {"a": "text", "b": "int4"}
    found: list[str] = []
    for number in range(count):
        what = chance.choice(("add", "constant", "drop", "rename", "anew"))
        name = chance.choice(sorted(there))
        if what in {"add", "constant"} or len(there) == 1:
            there[f"n{number}"] = of = chance.choice(("text", "int4"))
            found.append(f"ADD n{number} {of}" + f" DEFAULT '{number}'" * (what == "constant"))
        elif what == "drop":
            del there[name]
            found.append(f"DROP {name}")
        elif what == "rename":
            there[f"r{number}"] = there.pop(name)
            found.append(f"RENAME {name} TO r{number}")
        else:
            there[name] = "text"
            found += [f"DROP {name}", f"ADD {name} text"]
    return found


class OneByOne:
    """A shard that gets the same changes of columns as the others, at its own pace."""

    def __init__(self, name: str, shard: Database, changes: list[str], seed: int) -> None:
        self.shard = shard
        self.left = list(changes)
        self.chance = random.Random(f"{seed}{name}")
        self.rows = 0
        self.has_aside = False

    def step(self, catch_up: Callable[[], object]) -> None:
        """A few rows; perhaps a change, or a column that comes or goes here alone, and rows after it.

        The rows before have landed by then: the catalogue that they are described by is that of their time.
        """
        self.write()
        catch_up()
        if self.left and self.chance.random() < 0.6:
            self.alter(self.left.pop(0))
        elif self.has_aside or self.chance.random() < 0.5:
            self.alter("DROP aside" if self.has_aside else "ADD aside text")
            self.has_aside = not self.has_aside
        self.write()

    def alter(self, change: str) -> None:
        """In one transaction, with a row after it that shows it."""
        self.shard.execute(f"BEGIN; ALTER TABLE public.t {change}; {self.insert()}; COMMIT")

    def insert(self) -> str:
        """A row with a value in each column."""
        self.rows += 1
        return (
            "INSERT INTO public.t SELECT (jsonb_populate_record(NULL::public.t, jsonb_object_agg(attname, "
            f"{self.rows}))).* FROM pg_attribute WHERE attrelid = 'public.t'::regclass AND attnum > 0 "
            "AND NOT attisdropped"
        )

    def write(self) -> None:
        """Insert, update and delete."""
        self.shard.execute(self.insert())
        if self.rows > 2:
            at = self.chance.randint(1, self.rows)
            self.shard.execute(f"DELETE FROM public.t WHERE id = {at}")
            at = self.chance.randint(1, self.rows)
            self.shard.execute(f"UPDATE public.t SET id = -id WHERE id = {at}")


@pytest.mark.parametrize(("shards", "seed"), [(2, 0), (3, 1), (2, 2), (3, 3)], indirect=["shards"])
def test_random_orders_of_changes(shards: Shards, tmp_path: Path, seed: int) -> None:
    """In steps or at once, the same table and the same stops; the servers' rows when all have all changes."""
    orders = ["id int4 PRIMARY KEY, a text, b int4", "b int4, a text, id int4 PRIMARY KEY"]
    with_table(shards, orders[0], **dict(zip(shards, itertools.cycle(orders), strict=False)))
    changes = changes_of_columns(random.Random(seed), 4)
    running = [OneByOne(name, shard, changes, seed) for name, shard in shards.items()]
    with ShardsDaemon(shards, tmp_path) as daemon:
        while any(one.left or one.has_aside for one in running):
            for one in running:
                one.step(daemon.catch_up_all)
            daemon.catch_up_all()
        assert daemon.stop() == 0
    stops = applied_in_steps(daemon.root, tmp_path)
    if seed == 0:
        assert stops, "nothing stopped on the way: the test tells less"
    wanted = held_by_source(shards, "public.t")
    assert rows_by_source(tmp_path / "steps", "public.t") == wanted, changes
    read = {name: stranger.Reader(daemon.root, source=name).advance() for name in shards}
    tables = {name: reader.tables["public.t"] for name, reader in read.items()}
    assert in_order(stranger.as_one(tables)) == wanted, changes


@pytest.mark.parametrize("seed", range(2))
def test_random_orders_on_data_nodes(
    servers: Callable[[int], Postgres], tmp_path: Path, seed: int
) -> None:
    """The same of GaussDB, in the order of CSNs: columns are added to each node at its own pace."""
    orders = {"dn1": ["id", "a", "b"], "dn2": ["gone", "b", "id", "a"], "dn3": ["a", "id", "b"]}
    chance = random.Random(seed)
    with GaussCluster(tuple(orders), postgres=servers(15)) as cluster:
        left = {name: ["n0", "n1", "n2"] for name in orders}
        for name, order in orders.items():
            store = cluster.servers[name].store
            columns = {column: "int8" if column == "id" else "text" for column in order}
            made = store.create_table("public", "t", columns, key=["id"])
            if "gone" in order:
                store.drop_column(made, "gone")
        with several(cluster, tmp_path) as daemon:
            row = 0
            while any(left.values()):
                for name, server in cluster.servers.items():
                    table = server.store.tables["public", "t"]
                    if left[name] and chance.random() < 0.5:
                        table = server.store.add_column(table, left[name].pop(0), "text")
                    for _ in range(2):
                        row += 1
                        change = cluster.begin()
                        values = {of.name: f"{of.name}{row}" for of in table.columns}
                        change.on(name).insert(table, {**values, "id": str(row)})
                        change.commit()
                daemon.catch_up_csn()
            assert daemon.stop() == 0
        wanted = []
        for name, server in cluster.servers.items():
            table = server.store.tables["public", "t"]
            for held_values in server.store.contents(table).values():
                found = {k: v for k, v in table.row(held_values).items() if v is not None}
                wanted.append({"gd_source": name, **found, "id": int(found["id"])})
    applied_in_steps(daemon.root, tmp_path)
    assert rows_by_source(tmp_path / "steps", "public.t") == in_order(wanted)
