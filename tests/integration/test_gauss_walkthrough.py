"""docs/distributed.md on a simulated cluster: its commands as they stand there, and its table of what happens when."""

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from kit import landing
from kit.daemon import Json, wait_until
from kit.gaussclock import CsnClock
from kit.gausscluster import GaussCluster
from kit.gaussseveral import ClusterDatabase, SeveralDaemon, check_several, several
from kit.postgres import Postgres
from kit.runbook import Operator

from gaussdecode.errors import EX_CONFIG, EX_OK, EX_PROTOCOL
from gaussdecode.land.verify import verify
from gaussdecode.settings.load import load

pytestmark = pytest.mark.integration
PAGE = Path(__file__).parents[2] / "docs" / "distributed.md"
TEXT = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""


@pytest.fixture
def cluster(servers: Callable[[int], Postgres]) -> Iterator[GaussCluster]:
    """Two nodes with a table of bookings, whose amounts add up to nothing after every CSN."""
    with GaussCluster(("dn1", "dn2"), postgres=servers(15)) as made:
        made.create_table("shop", "booking", {"id": "int8", "amount": "int8"}, key=["id"])
        yield made
    assert made.violations() == []


class Bank:
    """Moves amounts from one node to the other."""

    def __init__(self, cluster: GaussCluster) -> None:
        self._cluster = cluster
        self._id = 0

    def book(self, amount: int, *, held: bool = False) -> int:
        """Book on both nodes, in one transaction; give its CSN.

        Args:
            amount: that goes from one to the other.
            held: the second node has no commit record yet; see `release`.
        """
        self.moving = self._cluster.begin()
        for name, sign in (("dn1", -1), ("dn2", 1)):
            table = self._cluster.servers[name].store.tables["shop", "booking"]
            self._id += 1
            row = {"id": str(self._id), "amount": str(sign * amount)}
            self.moving.on(name).insert(table, row)
        csn = self.moving.draw_csn()
        self.moving.commit_on("dn1")
        if not held:
            self.release()
        return csn

    def release(self) -> None:
        """Write the commit record that is missing."""
        self.moving.commit_on("dn2")


def lines_of(heading: str) -> list[str]:
    """Commands below a heading of the page."""
    section = TEXT.split(f"\n## {heading}\n")[1]
    section = re.split(r"^## ", section, maxsplit=1, flags=re.MULTILINE)[0]
    typed = ("    gaussdecode ", "    systemctl ")
    return [line.strip() for line in section.splitlines() if line.startswith(typed)]


def test_the_walk_through(cluster: GaussCluster, tmp_path: Path) -> None:
    """Every command of it, in its order, with bookings that move meanwhile."""
    config: dict[str, Json] = {"decoding": {"output-order": 1, "parallel-decode-num": 1}}
    daemon, bank = SeveralDaemon(ClusterDatabase(cluster), tmp_path, config=config), Bank(cluster)
    for server in cluster.servers.values():
        server.slots.clear()
    csns: list[int] = []
    words = {
        "CONFIG": str(daemon.config_path),
        "ROOT": str(daemon.root),
        "SLOT": daemon.config_path.stem,
        "TARGET": str(tmp_path / "target"),
    }
    operator, said = Operator(daemon, words), {}
    with contextlib.ExitStack() as stack:
        stack.push(daemon.__exit__)
        for line in lines_of("From nothing to a query by CSN"):
            said[line] = operator.carry_out(line)
            if line.startswith("systemctl enable"):
                csns += [bank.book(amount) for amount in (5, 7, 11)]
                daemon.catch_up_csn()
                operator.words["CSN"] = str(csns[1])
            if line.startswith("gaussdecode slot create"):
                assert all("s" in server.slots for server in cluster.servers.values())
    query = next(text for line, text in said.items() if " query " in line)
    numbers = [int(number) for number in re.findall(r"-?\d+", query.splitlines()[-1])]
    assert numbers == [4, 0, 12], query  # rows, sum, sum of what dn2 got
    assert "all is well" in next(text for line, text in said.items() if "verify" in line)
    assert all(server.slots == {} for server in cluster.servers.values())
    check_several(daemon.root, cluster)


def test_the_configuration_of_the_page(tmp_path: Path) -> None:
    """It is what the command line takes."""
    (text,) = re.findall(r"(?ms)^    sources:\n.*?(?=^\S)", TEXT)
    path = tmp_path / "orders.yaml"
    path.write_text(re.sub("(?m)^    ", "", text))
    path.chmod(0o600)
    assert list(yaml.safe_load(path.read_text())["sources"]) == ["dn1", "dn2"]
    assert load(path).lands_by_csn


def test_a_node_that_is_away_holds_all_up(cluster: GaussCluster, tmp_path: Path) -> None:
    """Nothing lands meanwhile, and nothing of the others is confirmed; then all of it does."""
    bank = Bank(cluster)
    with several(cluster, tmp_path) as daemon:
        bank.book(1)
        daemon.catch_up_csn()
        cluster.away("dn2")
        wait_until(lambda: daemon.status() is not None, "an answer")
        store = cluster.servers["dn1"].store
        alone = store.begin(user="app")
        alone.insert(store.tables["shop", "booking"], {"id": "1000", "amount": "0"})
        waiting = alone.commit()
        landed, slot = daemon.watermark(), cluster.servers["dn1"].slots["s"]
        time.sleep(1.5)
        assert daemon.watermark() == landed < waiting.csn
        assert slot.confirmed_lsn < waiting.end_lsn
        cluster.back("dn2")
        daemon.catch_up_csn()
        assert daemon.stop() == EX_OK
    check_several(daemon.root, cluster)


def test_in_doubt(cluster: GaussCluster, tmp_path: Path) -> None:
    """Committed on one node and prepared on the other: it waits, and lands whole."""
    bank = Bank(cluster)
    with several(cluster, tmp_path) as daemon:
        bank.book(1)
        daemon.catch_up_csn()
        csn = bank.book(2, held=True)
        time.sleep(1.0)
        assert daemon.watermark() < csn
        bank.release()
        daemon.catch_up_csn()
        assert daemon.stop() == EX_OK
    check_several(daemon.root, cluster)
    entries = [
        entry["n"]
        for entry in landing.read(daemon.root).entries
        if (csns := entry["extra"].get("csns")) and csns["least"] <= csn <= csns["greatest"]
    ]
    assert len(entries) == 1


def test_a_transaction_that_writes_for_long(cluster: GaussCluster, tmp_path: Path) -> None:
    """What committed after it began waits for its end, for a coordinator may have drawn its CSN."""
    bank = Bank(cluster)
    with several(cluster, tmp_path) as daemon:
        daemon.catch_up_csn()
        store = cluster.servers["dn1"].store
        long = store.begin(user="app")
        long.insert(store.tables["shop", "booking"], {"id": "1000", "amount": "0"})
        csn = bank.book(3)
        time.sleep(1.0)
        assert daemon.watermark() < csn
        long.commit()
        daemon.catch_up_csn()
        assert daemon.stop() == EX_OK
    check_several(daemon.root, cluster)


def test_other_nodes_are_refused(cluster: GaussCluster, tmp_path: Path) -> None:
    """A landing is complete over the nodes that it began with."""
    daemon = several(cluster, tmp_path)
    daemon.begin()
    with contextlib.ExitStack() as stack:
        stack.push(daemon.__exit__)
        rename(daemon, dn2="dn7")
        assert daemon.start().wait() == EX_CONFIG
        assert "the landing is of" in daemon.log.read_text()


def rename(daemon: SeveralDaemon, **names: str) -> None:
    """Rename sources of a daemon."""
    held = yaml.safe_load(daemon.config_path.read_text())
    sources = {names.get(name, name): of for name, of in held["sources"].items()}
    daemon.write_config_value("sources", sources)


def test_a_coordinator_ends_the_daemon(cluster: GaussCluster, tmp_path: Path) -> None:
    """A name that leads to a coordinator one day is not landed from."""
    daemon = several(cluster, tmp_path)
    daemon.begin()
    with contextlib.ExitStack() as stack:
        stack.push(daemon.__exit__)
        cluster.servers["dn2"].behaviour.node_type = "C"
        assert daemon.start().wait() == EX_CONFIG
        assert "the server is a coordinator" in daemon.log.read_text()


def test_clocks_that_are_not_one(cluster: GaussCluster, tmp_path: Path) -> None:
    """A node whose CSNs are far below the others' ends the daemon as soon as it commits."""
    with several(cluster, tmp_path) as daemon:
        bank = Bank(cluster)
        bank.book(1)
        daemon.catch_up_csn()
        store = cluster.servers["dn2"].store
        store.csn_clock = CsnClock()
        alone = store.begin(user="app")
        alone.insert(store.tables["shop", "booking"], {"id": "1000", "amount": "0"})
        alone.commit()
        assert daemon.wait() == EX_PROTOCOL


def test_replicated_tables_are_taken_from_the_first_node(
    cluster: GaussCluster, tmp_path: Path
) -> None:
    """Every node sends their rows; they land once, and a table of all nodes as ever."""
    made = cluster.create_table(
        "shop", "country", {"id": "int8", "name": "text"}, key=["id"], is_replicated=True
    )
    daemon, bank = several(cluster, tmp_path), Bank(cluster)
    daemon.write_config(landing={"replicated-tables": "shop.country"})
    with daemon:
        everywhere = cluster.begin()
        for name, table in made.items():
            everywhere.on(name).insert(table, {"id": "1", "name": "Ruritania"})
        everywhere.draw_csn()
        everywhere.commit()
        bank.book(1)
        daemon.catch_up_csn()
        assert daemon.stop() == EX_OK
    found = [
        (file["source"], file["table"], file["rows"])
        for entry in landing.read(daemon.root).entries
        for file in entry["files"]
        if file["table"].startswith("shop.")
    ]
    assert sorted(found) == [
        ("dn1", "shop.booking", 1),
        ("dn1", "shop.country", 1),
        ("dn2", "shop.booking", 1),
    ]
    report = verify(daemon.root)
    assert not report.findings, report.findings
