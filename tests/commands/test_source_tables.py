"""`check` names what several sources do not have alike, before anything of it has landed."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.commands import Run
from kit.gausscluster import GaussCluster
from kit.gaussprofile import COMMERCIAL
from kit.gaussseveral import SeveralDaemon, several
from kit.postgres import Database, Postgres
from kit.shards import ShardsDaemon, prepared

pytestmark = pytest.mark.integration


@pytest.fixture
def shards(servers: Callable[[int], Postgres]) -> Iterator[dict[str, Database]]:
    """Two databases of one server."""
    made = {name: Database(servers(15), f"tables_{name}") for name in ("east", "west")}
    prepared(made)
    yield made
    for shard in made.values():
        shard.drop()


def said_of(run: Run, daemon: ShardsDaemon | SeveralDaemon) -> str:
    """What check says, in one line."""
    return " ".join(run("check", str(daemon.config_path)).out.split())


def test_differences_are_named(shards: dict[str, Database], tmp_path: Path, run: Run) -> None:
    """Types, keys, also under REPLICA IDENTITY, and columns that are not there; other orders are none."""
    east, west = shards.values()
    east.execute("CREATE TABLE public.types (id int4 PRIMARY KEY, a numeric(9,2))")
    west.execute("CREATE TABLE public.types (id int4 PRIMARY KEY, a numeric(9,3))")
    east.execute("CREATE TABLE public.keys (id int4 PRIMARY KEY, a text)")
    west.execute("CREATE TABLE public.keys (id int4, a text)")
    for shard, identity in ((east, "DEFAULT"), (west, "USING INDEX other")):
        shard.execute("CREATE TABLE public.identity (id int4 PRIMARY KEY, a int4 NOT NULL)")
        shard.execute("CREATE UNIQUE INDEX other ON public.identity (a)")
        shard.execute(f"ALTER TABLE public.identity REPLICA IDENTITY {identity}")
    east.execute("CREATE TABLE public.lacking (id int4 PRIMARY KEY, more text)")
    west.execute("CREATE TABLE public.lacking (id int4 PRIMARY KEY)")
    east.execute("CREATE TABLE public.alike (id int4, b int8, a text, PRIMARY KEY (id, a))")
    west.execute(
        "CREATE TABLE public.alike (a text, b int4, id int4, PRIMARY KEY (a, id) INCLUDE (b))"
    )
    said = said_of(run, ShardsDaemon(shards, tmp_path))
    assert (
        "public.types: column 'a' has types that no column of one table holds alike: "
        "decimal128(9, 2) on source east, decimal128(9, 3) on source west"
    ) in said
    assert (
        "public.keys: rows of source east are told apart by key (id), those of source west by no key"
        in said
    )
    assert (
        "public.identity: rows of source east are told apart by key (id), those of source west by key (a)"
        in said
    )
    assert "columns are not on all sources: public.lacking: more on west" in said
    assert "public.alike" not in said


def test_what_is_alike_is_not_named(shards: dict[str, Database], tmp_path: Path, run: Run) -> None:
    """Nothing is said of sources with the same tables."""
    for shard in shards.values():
        shard.execute("CREATE TABLE public.t (id int4 PRIMARY KEY, a text)")
    said = said_of(run, ShardsDaemon(shards, tmp_path))
    assert "told apart" not in said
    assert "not on all sources" not in said


def test_data_nodes_are_compared(
    servers: Callable[[int], Postgres], tmp_path: Path, run: Run
) -> None:
    """Of GaussDB too."""
    with GaussCluster(("dn1", "dn2"), profile=COMMERCIAL, postgres=servers(15)) as cluster:
        for name, of in (("dn1", "text"), ("dn2", "int4")):
            store = cluster.servers[name].store
            store.create_table("public", "t", {"id": "int8", "v": of}, key=["id"], identity="d")
        said = said_of(run, several(cluster, tmp_path))
    assert "public.t: column 'v' has types that no column of one table holds alike" in said
