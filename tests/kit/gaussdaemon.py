"""The real daemon over a simulated GaussDB server, with the handles of `kit.daemon`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gaussdecode.model.lsn import Lsn
from kit.daemon import Daemon, Json
from kit.gausscheck import Wanted, visible_rows
from kit.gaussserver import GaussServer
from kit.postgres import Database

SLOT: Final = "s"


class GaussDatabase(Database):
    """A simulated server where tests of the daemon expect a database.

    Args:
        server: running.
        slot: name; it is made if it is not there.
        rows_of: how many rows of a transaction the stream brings.
    """

    def __init__(
        self, server: GaussServer, slot: str = SLOT, rows_of: Wanted = visible_rows
    ) -> None:
        self.gauss = server
        self.name = self.slot = self.publication = slot
        self._rows_of = rows_of
        if slot not in server.slots:
            server.create_slot(slot)

    @property
    def dsn(self) -> str:
        """Connection string."""
        return f"host=127.0.0.1 port={self.gauss.port} dbname={self.gauss.database} user=replica"

    def last_end(self) -> int:
        """Where the newest transaction with rows ends."""
        with self.gauss.store.changed:
            committed = list(self.gauss.store.committed)
        ends = [one.end_lsn for one in committed if self._rows_of(one)]
        return max(ends, default=0)

    def wal_end(self) -> Lsn:
        """The position that must be passed for everything to have landed."""
        return Lsn(max(self.last_end() - 1, 0))

    def slot_positions(self) -> tuple[Lsn, Lsn]:
        """Restart and confirmed position of the slot."""
        slot = self.gauss.slots[self.slot]
        return Lsn(slot.restart_lsn), Lsn(slot.confirmed_lsn)

    def senders(self) -> str:
        """Its slot, and where what is wanted of it ends."""
        return f"{self.gauss.slots[self.slot]}, wanted up to {self.wal_end()}"


class GaussDaemon(Daemon):
    """A daemon with kind gaussdb; options go to the section ``decoding``."""

    def _merge(self, dsn: str, changes: Mapping[str, Json]) -> Json:
        assert isinstance(self.database, GaussDatabase)
        merged = super()._merge(dsn, changes)
        secret = self.config_path.with_suffix(".password")
        secret.write_text(self.database.gauss.users["replica"].password + "\n")
        secret.chmod(0o600)
        source = merged["source"]
        del source["publication"]
        source |= {"kind": "gaussdb", "password-file": str(secret)}
        source |= changes.get("source", {})
        return merged

    def mark(self) -> None:
        """Nothing is needed: the last commit with rows is waited for."""


def lands(database: GaussDatabase, directory: Path, **options: object) -> GaussDaemon:
    """Make a daemon with options of GaussDB in the section ``decoding``."""
    directory.mkdir(parents=True, exist_ok=True)
    decoding = {name.replace("_", "-"): value for name, value in options.items()}
    return GaussDaemon(database, directory, config={"decoding": decoding})
