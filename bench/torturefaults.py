"""The faults of `torture.py`: what the daemon outlives, and what loses changes."""

import contextlib
import dataclasses
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

import psycopg
from kit.daemon import Daemon, Keeper, is_alive, wait_until
from kit.hostile import Hostile
from kit.postgres import Database, Postgres
from kit.proxy import Fault as Break
from kit.proxy import Proxy
from kit.workload import Workload

# All that the workload makes, by the publication's own list, so that something can be taken out.
PUBLISHED: Final = 'FOR TABLES IN SCHEMA kit, public, "We/ird.""S""", TABLE apart.big'
_DAY: Final = 86400.0
_PATIENCE: Final = 400.0  # a source that does not answer is given up after two minutes


@dataclasses.dataclass(slots=True)
class Stage:
    """All that faults are done to.

    Attributes:
        ends_before: how many ends of the daemon there were before the last loss.
    """

    server: Postgres
    database: Database
    proxy: Proxy
    daemon: Daemon
    keeper: Keeper
    hostile: Hostile
    workload: Workload
    rng: Random
    ends_before: int = 0

    def keep(self) -> None:
        """Start the daemon when it has ended."""
        self.keeper.keep()

    def recover(self) -> None:
        """Until changes are streamed again, through any number of starts."""

        def is_streaming() -> bool:
            self.keep()
            try:
                return (self.daemon.status() or {}).get("state") == "streaming"
            except (OSError, ValueError):
                return False  # it has just ended

        try:
            wait_until(is_streaming, "streaming again", _PATIENCE)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.daemon.log_tail(20)}") from None

    def resolve(self) -> None:
        """Commit what sessions left prepared when the server went away: it holds locks."""
        for (gid,) in self.database.execute("SELECT gid FROM pg_prepared_xacts"):
            with contextlib.suppress(psycopg.errors.UndefinedObject):
                self.database.execute(f"COMMIT PREPARED '{gid}'")

    def nap(self, least: float, most: float) -> None:
        """Let it go on for a random time."""
        time.sleep(self.rng.uniform(least, most))


# ---- outlived ----------------------------------------------------------------------------


def kill_main(stage: Stage) -> None:
    """Kill -9 of the whole daemon."""
    if stage.daemon.is_running:
        stage.daemon.kill9()


def kill_child(stage: Stage) -> None:
    """Kill -9 of the reader or a decoder."""
    pid = _signal_child(stage)
    # one of a session that ends anyway is not missed
    wait_until(lambda: pid is None or not is_alive(pid), "the child is gone")
    stage.nap(0.5, 2)


def _signal_child(stage: Stage) -> int | None:
    """Kill one, and do not wait for what follows; give its process id, or None between sessions."""
    stage.recover()
    children = sorted(stage.daemon.children().values())
    if not children:
        return None
    pid = stage.rng.choice(children)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return pid


def _terminate(stage: Stage) -> None:
    """Ask the daemon to stop, and do not wait for it."""
    if stage.daemon.is_running:
        os.kill(stage.daemon.pid, signal.SIGTERM)


def stop(stage: Stage) -> None:
    """SIGTERM under load."""
    stage.recover()
    status = stage.daemon.stop()
    assert status == 0, f"stopped with {status}"


def freeze(stage: Stage) -> None:
    """A process stands still for longer than the server waits, or for less."""
    victims = [stage.daemon.pid, *stage.daemon.children().values()]
    pid = stage.rng.choice(victims)
    os.kill(pid, signal.SIGSTOP)
    stage.nap(0.5, 10.0)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def cut(stage: Stage) -> None:
    """The connection breaks in the middle of a message."""
    before = stage.proxy.faults
    stage.proxy.plan(Break.CUT, stage.rng.choice((1, 26, 1000, 70_000)))
    with contextlib.suppress(AssertionError):
        wait_until(lambda: stage.proxy.faults > before, "the cut", 5)


def cut_all(stage: Stage) -> None:
    """Every connection breaks, those of snapshots too."""
    stage.proxy.cut_all()


def silence(stage: Stage) -> None:
    """The network swallows everything of a connection."""
    stage.proxy.plan(Break.BLACKHOLE, 2000)
    stage.nap(2, 10)


def restart_server(stage: Stage) -> None:
    """The server restarts, or crashes and recovers."""
    stage.server.stop(stage.rng.choice(("fast", "immediate", "kill")))
    stage.nap(0, 2)
    stage.server.start()
    stage.resolve()


def slow_sync(stage: Stage) -> None:
    """Every fsync takes long, and something happens meanwhile.

    With hundreds of them an end in order would take longer than anybody waits.
    """
    stage.hostile.slow_sync(stage.rng.choice((0.05, 0.5, 4.0)))
    stage.nap(0.5, 4)
    stage.rng.choice((kill_main, _signal_child, _terminate, cut_all, lambda _: None))(stage)
    stage.nap(0.5, 4)
    stage.hostile.behave()
    stage.nap(0.5, 1)


def very_slow_sync(stage: Stage) -> None:
    """One fsync takes longer than a session waits for its collector, and a child dies."""
    stage.recover()
    stage.hostile.slow_sync(14)
    stage.nap(1, 3)
    _signal_child(stage)
    stage.nap(0.5, 12)
    stage.hostile.behave()


def fail_sync(stage: Stage) -> None:
    """One fsync fails: the daemon ends, and recovery decides."""
    before = stage.hostile.fail_count
    stage.hostile.fail_sync(stage.rng.randint(1, 30))
    with contextlib.suppress(AssertionError):
        wait_until(lambda: stage.hostile.fail_count > before, "a failing fsync", 10)
    stage.nap(0, 1)


def fill_disk(stage: Stage) -> None:
    """Nothing can be written for a while; perhaps the daemon is killed meanwhile."""
    stage.hostile.fill_disk(is_full=True)
    stage.nap(1, 6)
    if stage.rng.random() < 0.4:
        kill_main(stage)
        stage.keep()
        stage.nap(1, 4)


def leap(stage: Stage) -> None:
    """The wall clock is wrong for a while, also over a restart."""
    stage.hostile.leap(stage.rng.choice((-40 * 365, -365, -2, -0.01, 0.5, 60, 3650)) * _DAY)
    stage.nap(1, 4)
    if stage.rng.random() < 0.5:
        stage.rng.choice((kill_main, _terminate))(stage)
        stage.nap(0.5, 2)
        stage.keep()
        stage.nap(1, 4)


def revoke(stage: Stage) -> None:
    """The role may not read tables for a while."""
    stage.database.execute("REVOKE pg_read_all_data FROM lander")
    stage.nap(0.5, 3)
    stage.database.execute("GRANT pg_read_all_data TO lander")


def publish_again(stage: Stage) -> None:
    """The publication is another one, or a newer one, and never missing: nothing is lost, but said."""
    name = stage.database.publication
    alter = f"ALTER PUBLICATION {name}"
    changes = (
        f"{alter} RENAME TO aside; ALTER PUBLICATION aside RENAME TO {name}",
        f"{alter} SET (publish = 'insert'); {alter} SET (publish = 'insert, update, delete, truncate')",
        f"{alter} DROP TABLE apart.big; {alter} ADD TABLE apart.big",
    )
    stage.recover()
    before = _suspects(stage)
    stage.database.execute(f"BEGIN; {stage.rng.choice(changes)}; COMMIT")
    if stage.rng.random() < 0.5:
        kill_main(stage)

    def is_said() -> bool:
        stage.keep()
        return _suspects(stage) > before

    wait_until(is_said, "the other publication is recorded", _PATIENCE)


def _suspects(stage: Stage) -> int:
    return sum(entry["kind"] == "suspect" for entry in stage.daemon.entries())


def lock_out(stage: Stage) -> None:
    """The role may not replicate or log in for a while."""
    what = stage.rng.choice(("LOGIN", "REPLICATION"))
    stage.database.execute(f"ALTER ROLE lander NO{what}")
    stage.proxy.cut_all()
    stage.nap(1, 3)
    stage.keep()
    stage.database.execute(f"ALTER ROLE lander {what}")


FAULTS: Final[tuple[Callable[[Stage], None], ...]] = (
    kill_main, kill_child, stop, freeze, cut, cut_all, silence, restart_server, slow_sync,
    very_slow_sync, fail_sync, fill_disk, leap, revoke, lock_out, publish_again,
)  # fmt: skip


# ---- losses ------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Loss:
    """Something by which changes are gone.

    Attributes:
        name: for the report.
        happen: does it; the daemon may run or not when it returns.
        is_new_landing: only a new landing mends it.
        may_be_recorded: the daemon may go on after a suspect entry, where it is not refused.
    """

    name: str
    happen: Callable[[Stage], None]
    is_new_landing: bool = False
    may_be_recorded: bool = False


def _down(stage: Stage) -> None:
    stage.recover()
    stage.daemon.stop()
    stage.ends_before = len(stage.keeper.ends) + 1


def _free_slot(stage: Stage) -> None:
    wait_until(
        lambda: not stage.database.execute("SELECT 1 FROM pg_replication_slots WHERE active"),
        "the slot is free",
    )


def _advance(stage: Stage) -> None:
    _down(stage)
    stage.nap(0.5, 1.5)
    _free_slot(stage)
    stage.database.execute(
        f"SELECT pg_replication_slot_advance('{stage.database.slot}', pg_current_wal_lsn())"
    )


def _drop(stage: Stage) -> None:
    _down(stage)
    stage.nap(0.2, 1)
    _free_slot(stage)
    stage.database.execute(f"SELECT pg_drop_replication_slot('{stage.database.slot}')")
    stage.nap(0.2, 1)


def _make_again(stage: Stage) -> None:
    _drop(stage)
    stage.database.create_slot()


def _restore(stage: Stage) -> None:
    """A copy of the data directory, more changes that land, the copy in their place."""
    stage.recover()
    stage.server.stop("fast")
    copy = stage.server.home / "copy"
    data: Path = stage.server.data
    owner = data.stat()
    shutil.copytree(data, copy, symlinks=True)
    stage.server.start()
    stage.resolve()
    stage.recover()
    stage.nap(2, 4)
    stage.keeper.catch_up()
    _down(stage)
    landed = stage.daemon.durable_lsn()
    stage.server.stop("immediate")
    shutil.rmtree(data)
    copy.rename(data)
    for path in (data, *data.rglob("*")):
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
    data.chmod(0o700)
    stage.server.start()
    stage.resolve()
    wait_until(lambda: stage.database.wal_end() > landed + 100_000, "the WAL grows beyond the log")


def _for_a_while(stage: Stage, change: str, back: str) -> None:
    """Change the publication under load and change it back, while the daemon streams or is down."""
    if stage.rng.random() < 0.5:
        _down(stage)
    else:
        stage.recover()
        stage.ends_before = len(stage.keeper.ends)
    stage.database.execute(change)
    low = stage.rng.randint(1, 10_000)
    stage.database.execute(
        f"UPDATE apart.big SET v = 'not published' WHERE id BETWEEN {low} AND {low + 5000}"
    )
    stage.nap(0.5, 3)
    stage.database.execute(back)


def _drop_publication(stage: Stage) -> None:
    name = stage.database.publication
    _for_a_while(stage, f"DROP PUBLICATION {name}", f"CREATE PUBLICATION {name} {PUBLISHED}")


def _publish_less(stage: Stage) -> None:
    alter = f"ALTER PUBLICATION {stage.database.publication} SET (publish = "
    _for_a_while(stage, f"{alter} 'insert')", f"{alter} 'insert, update, delete, truncate')")


def _take_out(stage: Stage) -> None:
    alter = f"ALTER PUBLICATION {stage.database.publication}"
    what = stage.rng.choice(("TABLE apart.big", "TABLES IN SCHEMA kit"))
    _for_a_while(stage, f"{alter} DROP {what}", f"{alter} ADD {what}")


LOSSES: Final = (
    Loss("the slot is advanced", _advance),
    Loss("the slot is dropped", _drop),
    Loss("the slot is made again", _make_again),
    Loss("the server is restored to the past", _restore, is_new_landing=True),
    Loss("the publication is dropped and made again", _drop_publication, may_be_recorded=True),
    Loss("the publication sends inserts only", _publish_less, may_be_recorded=True),
    Loss("something is taken out of the publication", _take_out, may_be_recorded=True),
)
