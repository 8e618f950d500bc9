"""Several PostgreSQL databases in one landing: positions side by side, and no order between them."""

import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from kit import landing
from kit.daemon import wait_until
from kit.postgres import Database, Postgres
from kit.served import Replication, Served
from kit.shards import ShardsDaemon, check_shards, prepared
from kit.workload import Workload, prepare

from gaussdecode.cli import main
from gaussdecode.errors import EX_OK, ConfigError
from gaussdecode.land.failpoints import VARIABLE
from gaussdecode.serve.errors import ServeError
from gaussdecode.settings.load import load

pytestmark = pytest.mark.integration
Shards = dict[str, Database]
SKIPS = "(\"skip-empty-xacts\" '1')"
TRUNCATE = b": TRUNCATE:"


@pytest.fixture
def shards(servers: Callable[[int], Postgres], request: pytest.FixtureRequest) -> Iterator[Shards]:
    """Two on one server, and one on another major."""
    name = f"shard_{os.getpid()}_{abs(hash(request.node.name)) % 10**6}"
    made = {
        "east": Database(servers(15), f"{name}_east"),
        "north": Database(servers(15), f"{name}_north"),
        "west": Database(servers(18), f"{name}_west"),
    }
    prepared(made)
    yield made
    for shard in made.values():
        shard.drop()


def workloads(shards: Shards) -> list[Workload]:
    """One on each, with its slot before the first change."""
    return [prepare(shard, seed) for seed, shard in enumerate(shards.values())]


@pytest.mark.parametrize("streaming", ["off", "parallel"])
def test_every_shard_lands(shards: Shards, tmp_path: Path, streaming: str) -> None:
    """The whole workload of each at once: types, schema changes, truncates, messages."""
    of = {"streaming": streaming} if streaming != "off" else {}
    with ShardsDaemon(shards, tmp_path, config={"source": of}) as daemon:
        running = workloads(shards)
        for one in running:
            one.start(40)
        for one in running:
            one.finish(stop=False)
        daemon.catch_up_all()
        assert daemon.stop() == 0
    check_shards(daemon.root, shards)
    if streaming == "off":
        check_served(daemon.root, shards)


def check_served(root: Path, shards: Shards) -> None:
    """A client of each source gets that source's transactions alone, in the order of its LSNs."""
    served_of = {name: transactions(root, name) for name in shards}
    for name, expected in served_of.items():
        middle, end = expected[len(expected) // 2][0], expected[-1][0]
        with Served(root) as served:
            with served.connect(
                dbname=name, options="-c gaussdecode.start_lsn=earliest"
            ) as session:
                session.execute(
                    "SELECT pg_create_logical_replication_slot(%s, 'test_decoding')", [name]
                )
            client = Replication(served, name, 0, SKIPS, dbname=name)
            assert counted(client.until(end)) == expected
            client.confirm(middle)
            client.next()
            client.close()
            with pytest.raises(ServeError, match="was not created in this database"):
                Replication(served, name, dbname=next(of for of in shards if of != name))
    with Served(root) as served:
        for name, expected in served_of.items():
            middle, end = expected[len(expected) // 2][0], expected[-1][0]
            client = Replication(served, name, 0, SKIPS, dbname=name)
            assert counted(client.until(end)) == [of for of in expected if of[0] > middle]
            client.close()


def transactions(root: Path, source: str) -> list[tuple[int, int]]:
    """End and number of rows of the transactions that changed tables."""
    rows = Counter(change.order[1] for change in landing.read(root, source).streamed)
    return sorted(rows.items())


def counted(messages: list[tuple[int, bytes]]) -> list[tuple[int, int]]:
    """The same, of messages of test_decoding; a TRUNCATE of several tables is one message."""
    found, rows = [], 0
    for lsn, data in messages:
        if data.startswith(b"table "):
            rows += data.partition(b": TRUNCATE:")[0].count(b", ") + 1 if TRUNCATE in data else 1
        elif data.startswith(b"COMMIT") and rows:
            found.append((lsn, rows))
            rows = 0
    return found


def test_killed_between_the_publications_of_two_sources(
    shards: Shards, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each server has a transaction of its own: who asks again has the others done, too, and loses nothing."""
    for shard in shards.values():
        shard.execute(
            "CREATE TABLE stays (id int4 PRIMARY KEY); CREATE TABLE goes (id int4 PRIMARY KEY);"
            "DROP PUBLICATION all_tables; CREATE PUBLICATION all_tables FOR TABLE stays, goes"
        )
        shard.create_slot()
    with ShardsDaemon(
        shards, tmp_path, environment={VARIABLE: "publication_altered=kill"}
    ) as daemon:
        act = ["ctl", str(daemon.config_path), "drop", "public.goes"]
        daemon.wait_for_state("streaming")
        assert main(act) != EX_OK
        daemon.wait()
        daemon.environment = {}
        daemon.start()
        daemon.wait_for_state("streaming")
        for shard in shards.values():
            shard.execute("INSERT INTO stays VALUES (1); INSERT INTO goes VALUES (1)")
        daemon.catch_up_all()
        capsys.readouterr()
        assert main(act) == EX_OK, capsys.readouterr().err
        told = capsys.readouterr().out
        assert "source east" not in told
        assert all(f"source {name}: taken out of" in told for name in ("north", "west"))
        assert main(act) != EX_OK
        assert "no configured publication has it" in capsys.readouterr().err
        for shard in shards.values():
            shard.execute("INSERT INTO stays VALUES (2); INSERT INTO goes VALUES (2)")
        daemon.catch_up_all()
        assert daemon.stop() == EX_OK
    for name in shards:
        landed = {"stays": set[object](), "goes": set[object]()}
        for change in landing.read(daemon.root, name).changes:
            if change.new:
                landed[change.schema.table[1]].add(change.new["id"])
        assert landed == {"stays": {1, 2}, "goes": set() if name == "east" else {1}}


@pytest.mark.parametrize("victim", ["main", "reader", "decoder"])
def test_kills_cost_nothing_but_time(shards: Shards, tmp_path: Path, victim: str) -> None:
    """Of any process of any shard, at random times."""
    rng = Random(victim)
    running = workloads(shards)
    with ShardsDaemon(shards, tmp_path) as daemon:
        for one in running:
            one.start(pause=0.05)
        for _ in range(3):
            daemon.wait_for_state("streaming")
            time.sleep(rng.uniform(0.05, 1.0))
            if victim == "main":
                daemon.kill9()
            else:
                of = rng.choice(list(shards))
                pids = [
                    pid
                    for name, pid in daemon.children().items()
                    if name.startswith(f"{of}: {victim}")
                ]
                if pids:
                    os.kill(rng.choice(pids), signal.SIGKILL)
                    assert daemon.wait() == os.EX_SOFTWARE
                    assert f"source {of}" in daemon.log_tail() or of in daemon.log_tail()
            if not daemon.is_running:
                daemon.start()
        for one in running:
            one.finish()
        daemon.catch_up_all()
        assert daemon.stop() == 0
    check_shards(daemon.root, shards)


def test_a_shard_that_is_away(shards: Shards, tmp_path: Path) -> None:
    """Its connections are cut again and again; all begin anew together."""
    running = workloads(shards)
    with ShardsDaemon(shards, tmp_path) as daemon:
        daemon.wait_for_state("streaming")
        for one in running:
            one.start(pause=0.02)
        for _ in range(3):
            time.sleep(0.5)
            shards["west"].execute(
                "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active"
            )
            wait_until(lambda: daemon.is_running, "the daemon stays")
        for one in running:
            one.finish()
        daemon.catch_up_all()
        assert daemon.stop() == 0
    check_shards(daemon.root, shards)


def test_other_sources_are_refused(shards: Shards, tmp_path: Path) -> None:
    """One that is left out, or has another slot: what the landing holds would not be whole."""
    for shard in shards.values():
        shard.create_slot()
    with ShardsDaemon(shards, tmp_path) as daemon:
        daemon.wait_for_state("streaming")
        assert daemon.stop() == 0
        sources = daemon._config["sources"]
        daemon.write_config_value("sources", {n: of for n, of in sources.items() if n != "north"})
        daemon.start()
        assert daemon.wait() == os.EX_CONFIG
        assert "the landing is of the sources 'east', 'north', 'west'" in daemon.log_tail()
        swapped = {**sources, "east": sources["west"], "west": sources["east"]}
        daemon.write_config_value("sources", swapped)
        daemon.start()
        assert daemon.wait() != 0
        assert "belongs to another source than what is at 'east' now" in daemon.log_tail()


def test_the_pages_configuration(tmp_path: Path) -> None:
    """It loads, and what it says to be refused is."""
    text = (Path(__file__).parents[2] / "docs" / "shards.md").read_text()
    (block,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    path = tmp_path / "shop.yaml"
    path.write_text(block)
    config = load(path)
    assert list(config.members) == ["east", "west"]
    assert config.snapshot_refusal is None
    for key, section in {
        "source.two-phase": "source:\n  two-phase: true",
        "landing.on-table-error": "landing:\n  on-table-error: quarantine",
        "guard.drop-slot-above": "guard:\n  drop-slot-above: 1GiB",
    }.items():
        assert key in text.replace("`", "")
        head, _ = section.split("\n")
        path.write_text(
            block.replace(f"{head}\n", f"{section}\n") if head in block else f"{block}{section}\n"
        )
        with pytest.raises(ConfigError, match=key):
            load(path)
