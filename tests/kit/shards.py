"""One daemon over several PostgreSQL databases, and what it landed against each of them."""

import json
from collections.abc import Mapping
from pathlib import Path

from gaussdecode.land.verify import verify
from kit import landing, oracle
from kit.daemon import MARK, Daemon, Json, wait_until
from kit.postgres import Database


class ShardsDaemon(Daemon):
    """A daemon with `sources:`, one of each database.

    Args:
        shards: databases by name of the source; each with its slot.
        directory: as of `Daemon`.
        config: likewise.
        environment: likewise.
    """

    def __init__(
        self,
        shards: Mapping[str, Database],
        directory: Path,
        *,
        config: Mapping[str, Json] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.shards = dict(shards)
        first = next(iter(self.shards.values()))
        super().__init__(first, directory, config=config, environment=environment)

    def _merge(self, dsn: str, changes: Mapping[str, Json]) -> Json:
        merged = super()._merge(dsn, changes)
        del merged["slot"], merged["source"]["dsn"]
        merged["source"]["publication"] = ["all_tables"]
        merged["sources"] = {
            name: {"dsn": f"{shard.dsn} sslmode=disable", "slot": shard.slot}
            for name, shard in self.shards.items()
        }
        return merged

    def mark_all(self) -> None:
        """Commit a logical message on each."""
        self._marks += 1
        text = f"SELECT pg_logical_emit_message(true, '{MARK}', '{self._marks}')"
        for shard in self.shards.values():
            shard.execute(text)

    def catch_up_all(self) -> None:
        """Wait until all that is committed now has landed, of each; starts the daemon again."""
        targets = {name: int(shard.wal_end()) for name, shard in self.shards.items()}
        self.mark_all()

        def is_landed() -> bool:
            if not self.is_running:
                self.start()
            newest = landing.newest_entry(self.root)  # none before all have connected
            positions = newest["positions"] if newest else {}
            return bool(newest) and all(positions[name]["lsn"] > at for name, at in targets.items())

        try:
            wait_until(is_landed, f"landing up to {targets}")
        except AssertionError as error:
            senders = "\n".join(shard.senders() for shard in self.shards.values())
            stands = f"{json.dumps(self.status(), indent=1)}\n{senders}"
            raise AssertionError(f"{error}\n{stands}\n{self.log_tail(60)}") from None


def prepared(shards: Mapping[str, Database]) -> None:
    """Publications by one name, for a configuration that is shared."""
    for shard in shards.values():
        shard.execute("CREATE PUBLICATION all_tables FOR ALL TABLES")


def check_shards(root: Path, shards: Mapping[str, Database]) -> None:
    """Each source's changes landed exactly once and in its order, and give its tables."""
    oracle.check_log(landing.read_entries(root))
    for name, shard in shards.items():
        landed = landing.read(root, name)
        oracle.check_order(landed)
        oracle.check_journal(landed, shard)
        oracle.check_tables(landed, shard)
        confirmed = int(shard.slot_positions()[1])
        assert confirmed <= landed.entries[-1]["positions"][name]["lsn"]
    report = verify(root)
    assert not report.findings, report.findings
