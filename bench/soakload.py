"""The load of `soak.py`: several sessions that never rest, and now and then a large transaction.

The sessions are those of the tests (`kit.workload`: all types, values out of line, keys and
their absence, truncates, schema changes, two phases, savepoints), seeded. `Bulk` adds
transactions far above `max-txn-in-memory`. Everything is in the journal, so that the
oracle can count what must have landed.
"""

import threading
import time
from random import Random
from typing import Final

import psycopg
from kit.postgres import Database, Session, run
from kit.workload import Workload

_ROWS: Final = 4000
_SESSION: Final = 99  # number in the journal
_OLD: Final = "5 seconds"


class Bulk:
    """Large transactions over one table, in a session of their own.

    Attributes:
        count: committed.
    """

    def __init__(self, database: Database, seed: int) -> None:
        self._database = database
        self._rng = Random(f"{seed}-bulk")
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._next = 0
        self._failure: BaseException | None = None
        self.count = 0
        database.execute("CREATE TABLE public.bulk (id int8 PRIMARY KEY, n int4, v text)")

    def start(self, seconds: float) -> None:
        """Commit one about every so many seconds until `finish`."""
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, args=(seconds,), daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait for the transaction under way.

        Raises:
            BaseException: what the session failed with.
        """
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self, seconds: float) -> None:
        while not self._stop.wait(self._rng.uniform(0.5, 1.5) * seconds):
            try:
                with self._database.connect() as session:
                    self._transaction(session)
                self.count += 1
            except psycopg.OperationalError:
                continue  # the server is away; what is in doubt is in the journal or nowhere
            except BaseException as error:  # noqa: BLE001 - `finish` raises it
                self._failure = error
                return

    def _transaction(self, session: Session) -> None:
        rng, first = self._rng, self._next
        self._next += _ROWS
        session.execute("BEGIN")
        changes = session.execute(
            "INSERT INTO public.bulk SELECT g, g %% 7, repeat(md5(g::text), 20) "
            "FROM generate_series(%s::int8, %s::int8) g",
            (first, first + _ROWS - 1),
        ).rowcount
        step = rng.randint(3, 9)
        for text in ("UPDATE public.bulk SET n = n + 1", "DELETE FROM public.bulk"):
            changes += session.execute(
                f"{text} WHERE id >= %s AND id %% %s = 0", (first - _ROWS, step)
            ).rowcount
        if rng.random() < 0.2:
            session.execute("TRUNCATE public.bulk")
            changes += 1
        ((xid,),) = run(session, "SELECT pg_current_xact_id()::text::int8")
        session.execute(
            "INSERT INTO kit.journal VALUES (%s, %s, %s)",
            (xid & 0xFFFFFFFF, _SESSION, changes + 1),
        )
        session.execute("COMMIT")


class Load:
    """All sessions together.

    Args:
        database: with the tables of `kit.workload`.
        workload: its sessions.
        seed: of the large transactions.
        pause: seconds that each session waits between two transactions.
        bulk_seconds: between two large transactions.
    """

    def __init__(
        self, database: Database, workload: Workload, seed: int, pause: float, bulk_seconds: float
    ) -> None:
        self._database = database
        self._workload = workload
        self._pause = pause
        self._bulk_seconds = bulk_seconds
        self._is_running = False
        self.bulk = Bulk(database, seed)

    @property
    def transactions(self) -> int:
        """Committed by the sessions so far."""
        return sum(len(worker.committed) for worker in self._workload.workers) + self.bulk.count

    def start(self) -> None:
        """Begin, or go on."""
        self._workload.start(pause=self._pause)
        self.bulk.start(self._bulk_seconds)
        self._is_running = True

    def finish(self) -> None:
        """Stop, and commit what is prepared; the server must be there."""
        if self._is_running:
            self.bulk.finish()
            self._workload.finish()
            self._is_running = False

    def idle(self, seconds: float) -> None:
        """Nobody does anything for so long."""
        self.finish()
        time.sleep(seconds)
        self.start()

    def resolve(self) -> None:
        """Commit what sessions left prepared when the server went away: it holds locks."""
        with self._database.connect() as session:
            for (gid,) in run(
                session,
                "SELECT gid FROM pg_prepared_xacts "
                f"WHERE prepared < clock_timestamp() - interval '{_OLD}'",
            ):
                try:
                    run(session, f"COMMIT PREPARED '{gid}'")
                except psycopg.errors.UndefinedObject:
                    continue  # its own session was faster
