"""One daemon over several simulated data nodes, and what it landed against the cluster's oracle."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gaussdecode.land.verify import verify
from gaussdecode.model.lsn import Lsn
from kit import landing, oracle
from kit.daemon import Json, wait_until
from kit.gausscheck import visible_rows
from kit.gausscluster import GaussCluster, GlobalCommit
from kit.gaussdaemon import GaussDaemon, GaussDatabase

OPTIONS: Final[dict[str, object]] = {
    "parallel-decode-num": 2,
    "decode-style": "b",
    "sending-batch": 1,
    "skip-empty-xacts": True,
    "output-order": 1,
}

SERIAL: Final[dict[str, object]] = {"parallel-decode-num": 1, "output-order": 1}


class ClusterDatabase(GaussDatabase):
    """The nodes of a cluster where tests of the daemon expect a database; the first stands for all."""

    def __init__(self, cluster: GaussCluster, slot: str = "s") -> None:
        self.cluster = cluster
        self.nodes = {name: GaussDatabase(server, slot) for name, server in cluster.servers.items()}
        super().__init__(next(iter(cluster.servers.values())), slot)

    def last_csn(self) -> int:
        """Of the newest transaction with rows that has all of its commit records."""
        return max((of.csn for of in wanted(self.cluster)), default=0)


class SeveralDaemon(GaussDaemon):
    """A daemon with `sources:`, one of each node."""

    def _merge(self, dsn: str, changes: Mapping[str, Json]) -> Json:
        merged = super()._merge(dsn, changes)
        assert isinstance(self.database, ClusterDatabase)
        del merged["slot"], merged["source"]["dsn"]
        merged["sources"] = {
            name: {"dsn": f"{node.dsn} sslmode=disable", "slot": node.slot}
            for name, node in self.database.nodes.items()
        }
        merged["snapshot"] = {"mode": "none", **merged.get("snapshot", {})}
        return merged

    def watermark(self) -> int:
        """The CSN up to which everything has landed."""
        newest = landing.newest_entry(self.root)
        assert newest is not None
        csns = {position["csn"] or 0 for position in newest["positions"].values()}
        assert len(csns) == 1
        return csns.pop()

    def catch_up_csn(self) -> None:
        """Wait until all that committed has landed."""
        assert isinstance(self.database, ClusterDatabase)
        last = self.database.last_csn()
        wait_until(
            lambda: bool(landing.newest_entry(self.root)) and self.watermark() >= last,
            f"CSN {last}",
        )


def several(
    cluster: GaussCluster,
    directory: Path,
    base: Mapping[str, object] = OPTIONS,
    **options: object,
) -> SeveralDaemon:
    """Make a daemon over all nodes."""
    directory.mkdir(parents=True, exist_ok=True)
    given = {**base, **{name.replace("_", "-"): value for name, value in options.items()}}
    return SeveralDaemon(ClusterDatabase(cluster), directory, config={"decoding": given})


def wanted(cluster: GaussCluster) -> list[GlobalCommit]:
    """Transactions of the cluster with rows, by CSN."""
    return [of for of in cluster.history() if any(visible_rows(part) for part in of.parts.values())]


def check_several(root: Path, cluster: GaussCluster) -> None:
    """What landed is what committed: each once, in order of CSNs, whole over all nodes."""
    landed = landing.read(root)
    oracle.check_log(landed.entries)
    expected = {
        (of.csn, name, part.end_lsn): (part.xid, visible_rows(part))
        for of in cluster.history()
        for name, part in of.parts.items()
        if visible_rows(part)
    }
    rows = [row for row in landed.transactions if row["rows"]]
    found = {
        (row["gd_csn"], row["gd_source"], row["gd_lsn"]): (row["gd_xid"], row["rows"])
        for row in rows
    }
    assert len(found) == len(rows), "a transaction landed twice"
    assert not expected.keys() - found.keys(), "transactions did not land"
    assert not found.keys() - expected.keys(), "transactions landed that did not commit"
    assert found == expected
    check_entries(landed.entries)
    for server in cluster.servers.values():
        assert not server.violations, server.violations
        assert not server.unknown_queries, server.unknown_queries
    report = verify(root)
    assert not report.findings, report.findings


def check_entries(entries: list[Json]) -> None:
    """Every CSN of an entry is at or below its watermark, and above that of the one before."""
    passed = 0
    for entry in entries:
        (watermark,) = {position["csn"] for position in entry["positions"].values()}
        csns = entry["extra"].get("csns")
        if csns is not None:
            assert passed < csns["least"] <= csns["greatest"] <= watermark
        assert (watermark or 0) >= passed
        passed = watermark or passed


def positions(root: Path) -> dict[str, Lsn]:
    """Of each source in the newest entry."""
    newest = landing.newest_entry(root)
    assert newest is not None
    return {name: Lsn(of["lsn"]) for name, of in newest["positions"].items()}
