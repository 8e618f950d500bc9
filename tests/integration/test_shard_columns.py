"""Columns of one table on several sources: each has numbers of its own, and what cannot be one table stops.

Real servers, and tables that the local engine makes of what landed, compared with what the servers hold.
"""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.applied import newest
from kit.postgres import Database, Postgres
from kit.shards import ShardsDaemon, prepared

from gaussdecode.spark.apply import Options, apply_with
from gaussdecode.spark.engine import LocalEngine
from gaussdecode.spark.landing import Point
from gaussdecode.spark.run import Summary
from gaussdecode.spark.store import Target

pytestmark = pytest.mark.integration
Shards = dict[str, Database]
Rows = list[dict[str, Any]]  # Any: values
_numbers = itertools.count()


@pytest.fixture
def shards(servers: Callable[[int], Postgres]) -> Iterator[Shards]:
    """Two, on servers of two majors."""
    name = f"columns_{os.getpid()}_{next(_numbers)}"
    made = {
        "east": Database(servers(15), f"{name}_east"),
        "west": Database(servers(16), f"{name}_west"),
    }
    prepared(made)
    yield made
    for shard in made.values():
        shard.drop()


def applied(root: Path, target: Path, to: int | None = None) -> Summary:
    """Make tables of what landed, up to an entry."""
    return apply_with(
        LocalEngine(), root, target, Options(history=True), to=None if to is None else Point(n=to)
    )


def rows_of(target: Path, table: str) -> Rows:
    """Current rows of a table, each with its source; columns by true name, NULLs left out."""
    store = Target(target)
    schema, rows = newest(store, store.find_table(table))
    names = {column.name: column.true_name for column in schema.columns}
    found = []
    for row in rows:
        values = {names[name]: row[name] for name in names if row[name] is not None}
        found.append({"gd_source": row["gd_source"], **values})
    return sorted(found, key=repr)


def held(shards: Shards, table: str) -> Rows:
    """The same of the servers' tables."""
    found = []
    for name, shard in shards.items():
        with shard.connect() as session:
            cursor = session.execute(f"SELECT * FROM {table}")
            columns = [column.name for column in cursor.description or ()]
            for values in cursor.fetchall():
                pairs = zip(columns, values, strict=True)
                found.append({"gd_source": name, **{k: v for k, v in pairs if v is not None}})
    return sorted(found, key=repr)


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
    assert rows_of(tmp_path / "target", "public.t") == held(shards, "public.t")
