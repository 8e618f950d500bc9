"""A streaming standby of a test's server."""

import shutil
from collections.abc import Mapping

from kit.daemon import wait_until
from kit.postgres import Postgres


class Standby(Postgres):
    """A standby of another server, made from a copy of its files, the slots included."""

    def __init__(self, primary: Postgres, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(primary.major, {"fsync": "on", **(settings or {})})
        shutil.rmtree(self.data)
        shutil.copytree(primary.data, self.data)
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        (self.data / "standby.signal").touch()
        with (self.data / "postgresql.auto.conf").open("a") as file:
            file.write(f"primary_conninfo = '{primary.dsn()}'\n")
        if self._user is not None:
            for path in (self.data, *self.data.rglob("*")):
                shutil.chown(path, self._user.pw_uid, self._user.pw_gid)

    def wait_for(self, primary: Postgres) -> None:
        """Wait until it has replayed all that the primary wrote."""
        ((end,),) = primary.execute("SELECT pg_current_wal_lsn()::text")
        query = f"SELECT pg_last_wal_replay_lsn() >= '{end}'::pg_lsn"
        wait_until(lambda: self.execute(query) == [(True,)], f"the standby is at {end}")

    def promote(self) -> None:
        """Make it a server of its own, with ``pg_ctl promote``."""
        self._run_as_user("pg_ctl", "promote", "--wait", "-D", str(self.data))
