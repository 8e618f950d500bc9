"""A seeded random workload in several sessions, which writes down what it committed.

Every transaction ends with a row in ``kit.journal``: its xid and how many changes, the
journal row included, a consumer must see of it. Each session does what a real one does:
many tables, savepoints and rollbacks, truncates, schema changes, logical messages,
prepared transactions. What collides (locks, a column that has gone) is rolled back.

Two rules keep the source comparable with a replay of its changes, because the server
does not send them: after a column is renamed or retyped every row is touched, and a
table is truncated before it is dropped or given another name.
"""

import threading
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

import psycopg

from kit.postgres import Database, Row, Session, run
from kit.values import ALL_TYPES, TYPE_DDL, nullable, octets, string

# Regular expression of the tables whose DDL the stream may not show, and of what one was renamed to.
SUSPECTS: Final = r"kit\.shape|public\.\w+_old"
_COLUMNS: Final = ", ".join(f"{column.name} {column.type}" for column in ALL_TYPES)


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


WEIRD_SCHEMA: Final = 'We/ird."S"'
WEIRD_TABLE: Final = "../Ta.b=le \"x\" 'q' %41 \\ 😀"
_WEIRD: Final = f"{_quote(WEIRD_SCHEMA)}.{_quote(WEIRD_TABLE)}"
_WEIRD_MARKED: Final = _WEIRD.replace("%", "%%")  # in statements with parameters

TABLE_DDL: Final = f"""
CREATE TABLE kit.journal (xid int8 PRIMARY KEY, session int4, changes int4);
CREATE TABLE kit.types (id int8 PRIMARY KEY, {_COLUMNS});
CREATE TABLE kit.types_full (id int8 PRIMARY KEY, {_COLUMNS});
ALTER TABLE kit.types_full REPLICA IDENTITY FULL;
CREATE TABLE kit.toast (id int8 PRIMARY KEY, n int4, a text, b bytea, c text);
ALTER TABLE kit.toast ALTER a SET STORAGE EXTERNAL, ALTER b SET STORAGE EXTERNAL;
CREATE TABLE kit.toast_full (id int8 PRIMARY KEY, n int4, a text, b bytea, c text);
ALTER TABLE kit.toast_full ALTER a SET STORAGE EXTERNAL, ALTER b SET STORAGE EXTERNAL;
ALTER TABLE kit.toast_full REPLICA IDENTITY FULL;
CREATE TABLE kit.pair_key (a text, b int4, v text, PRIMARY KEY (a, b));
CREATE TABLE kit.index_key (id int8 PRIMARY KEY, k int8 NOT NULL UNIQUE, v text);
ALTER TABLE kit.index_key REPLICA IDENTITY USING INDEX index_key_k_key;
CREATE TABLE kit.bag (v text, n numeric(12,3));
CREATE TABLE kit.bag_full (v text, n int4);
ALTER TABLE kit.bag_full REPLICA IDENTITY FULL;
CREATE TABLE kit.no_columns ();
CREATE TABLE kit.parent (id int8 PRIMARY KEY, v text);
CREATE TABLE kit.child (id int8 PRIMARY KEY, parent int8 REFERENCES kit.parent, v text);
CREATE TABLE kit.shape (id int8 PRIMARY KEY, a int4, b text);
CREATE SCHEMA {_quote(WEIRD_SCHEMA)};
CREATE TABLE {_WEIRD} (id int8 PRIMARY KEY, "ID" text, "Id" int4, "gd_op" text,
  "gd_seq" int8, "sp ace" text, "quo""te" text, "sl/ash" text, "😀" text, "_lead" text);
"""


class RolledBack(Exception):  # noqa: N818 - no error: the workload wants it
    """The transaction was rolled back on purpose."""


class Worker:
    """One session of the workload.

    Attributes:
        committed: xid of every transaction that committed.
        messages: content of every non-transactional message it sent.
    """

    def __init__(self, database: Database, seed: int, index: int, *, hidden_ddl: bool) -> None:
        self._database = database
        self._hidden_ddl = hidden_ddl
        self._rng = Random(f"{seed}-{index}")
        self._index = index
        self._next_id = 0
        self._changes = 0
        self._session: Session | None = None
        self._columns = 0
        self._savepoints = 0
        self.committed: list[int] = []
        self.messages: list[str] = []
        self.transactions = 0
        self._steps: Sequence[tuple[int, Callable[[], None]]] = (
            (12, self._insert_types), (6, self._update_types), (4, self._delete_types),
            (6, self._insert_toast), (8, self._update_toast), (2, self._delete_toast),
            (6, self._change_pair_key), (6, self._change_index_key), (5, self._fill_bags),
            (3, self._change_bag), (2, self._insert_no_columns), (4, self._insert_family),
            (1, self._truncate), (3, self._use_shape), (1, self._change_shape),
            (5, self._use_weird), (2, self._message), (3, self._savepoint),
        )  # fmt: skip

    def connect(self) -> None:
        """Open a session, again after the server went away."""
        self.close()
        self._session = self._database.connect()
        self._session.execute("SET lock_timeout = '2s'")

    def close(self) -> None:
        """Close the session."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def transaction(self) -> None:
        """Run one random transaction to its commit or rollback.

        Raises:
            psycopg.OperationalError: the server is gone; the transaction is in doubt.
        """
        if self._session is None or self._session.closed:
            self.connect()
        self._changes = 0
        self.transactions += 1
        try:
            self._sql("BEGIN")
            for _ in range(self._rng.choice((1, 1, 2, 3, 5, 12))):
                self._step()
            if self._rng.random() < 0.08:
                raise RolledBack
            self._commit()
        except RolledBack:
            self._sql("ROLLBACK")
        except psycopg.errors.OperationalError as error:
            if error.sqlstate is None or error.sqlstate.startswith(("57", "08")):
                raise
            self._sql("ROLLBACK")
        except psycopg.Error:
            self._sql("ROLLBACK")

    def _commit(self) -> None:
        """Write the journal row and commit, now and then in two phases."""
        xid = int(self._sql("SELECT pg_current_xact_id()::text")[0][0])
        self._changes += 1
        self._sql(
            "INSERT INTO kit.journal VALUES (%s, %s, %s)",
            xid & 0xFFFFFFFF,
            self._index,
            self._changes,
        )
        if self._rng.random() < 0.05:
            self._sql(f"PREPARE TRANSACTION 'kit-{xid}'")
            if self._rng.random() < 0.3:
                self._sql(f"ROLLBACK PREPARED 'kit-{xid}'")
                return
            self._sql(f"COMMIT PREPARED 'kit-{xid}'")
        else:
            self._sql("COMMIT")
        self.committed.append(xid & 0xFFFFFFFF)

    def _sql(self, query: str, *values: object) -> list[Row]:
        if self._session is None:
            raise RuntimeError("no session")
        return run(self._session, query, values or None)

    def _change(self, query: str, *values: object) -> int:
        """Run a statement that changes rows, and count them."""
        if self._session is None:
            raise RuntimeError("no session")
        count = self._session.execute(query, values or None).rowcount
        self._changes += max(count, 0)
        return count

    def _step(self) -> None:
        weights = [weight for weight, _ in self._steps]
        self._rng.choices([step for _, step in self._steps], weights)[0]()

    def _fresh(self) -> int:
        """Make an id that no other session makes."""
        self._next_id += 1
        return self._index * 10_000_000 + self._next_id

    def _known(self) -> int:
        """Choose an id that this session made."""
        low = max(1, self._next_id - 200)
        return self._index * 10_000_000 + self._rng.randint(low, max(low, self._next_id))

    # --- all types ---------------------------------------------------------------------

    def _types_table(self) -> str:
        return self._rng.choice(("kit.types", "kit.types_full"))

    def _insert_types(self) -> None:
        table = self._types_table()
        rows = self._rng.choice((1, 1, 1, 4, 15))
        marks = ", ".join(["%s"] * (len(ALL_TYPES) + 1))
        for _ in range(rows):
            values = [nullable(self._rng, column.value) for column in ALL_TYPES]
            self._change(f"INSERT INTO {table} VALUES ({marks})", self._fresh(), *values)

    def _update_types(self) -> None:
        columns = self._rng.sample(ALL_TYPES, self._rng.randint(1, 6))
        values = [nullable(self._rng, column.value) for column in columns]
        settings = ", ".join(f"{column.name} = %s" for column in columns)
        low = self._known()
        self._change(
            f"UPDATE {self._types_table()} SET {settings} WHERE id BETWEEN %s AND %s",
            *values, low, low + self._rng.choice((0, 3)),
        )  # fmt: skip

    def _delete_types(self) -> None:
        self._change(f"DELETE FROM {self._types_table()} WHERE id = %s", self._known())

    # --- values stored out of line -----------------------------------------------------

    def _toast_table(self) -> str:
        return self._rng.choice(("kit.toast", "kit.toast_full"))

    def _large(self) -> str:
        size = self._rng.choice((0, 10, 3000, 9000, 40000))
        return string(4)(self._rng) + self._rng.randbytes(size // 2).hex()

    def _insert_toast(self) -> None:
        self._change(
            f"INSERT INTO {self._toast_table()} VALUES (%s, 0, %s, %s, %s)",
            self._fresh(), self._large(), self._large().encode(), self._large(),
        )  # fmt: skip

    def _update_toast(self) -> None:
        column, value = self._rng.choice(
            (
                ("n", "1"),
                ("n", None),
                ("a", self._large()),
                ("c", self._large()),
                ("b", octets(self._rng)),
            )
        )
        self._change(
            f"UPDATE {self._toast_table()} SET {column} = %s WHERE id >= %s AND id < %s + 4",
            value, *[self._known()] * 2,
        )  # fmt: skip
        if self._rng.random() < 0.2:
            self._change(
                f"UPDATE {self._toast_table()} SET id = %s WHERE id = %s",
                self._fresh(), self._known(),
            )  # fmt: skip

    def _delete_toast(self) -> None:
        self._change(f"DELETE FROM {self._toast_table()} WHERE id = %s", self._known())

    # --- keys and their absence --------------------------------------------------------

    def _change_pair_key(self) -> None:
        text = string(12)(self._rng)
        number = self._index * 1000 + self._rng.randint(0, 30)
        self._change(
            "INSERT INTO kit.pair_key VALUES (%s, %s, %s) "
            "ON CONFLICT (a, b) DO UPDATE SET v = excluded.v",
            text, number, string(20)(self._rng),
        )  # fmt: skip
        action = self._rng.randint(0, 3)
        if action == 0:
            self._change("DELETE FROM kit.pair_key WHERE b = %s", number)
        elif action == 1:
            self._change("UPDATE kit.pair_key SET a = a || 'x' WHERE b = %s", number)

    def _change_index_key(self) -> None:
        self._change(
            "INSERT INTO kit.index_key VALUES (%s, %s, %s)",
            self._fresh(), self._fresh(), string(9)(self._rng),
        )  # fmt: skip
        action = self._rng.randint(0, 3)
        if action == 0:
            self._change(
                "UPDATE kit.index_key SET k = %s WHERE k = %s", self._fresh(), self._known()
            )
        elif action == 1:
            self._change(
                "UPDATE kit.index_key SET id = %s WHERE k = %s", self._fresh(), self._known()
            )
        elif action == 2:
            self._change("DELETE FROM kit.index_key WHERE k = %s", self._known())

    def _fill_bags(self) -> None:
        count = self._rng.choice((1, 3, 200))
        self._change("INSERT INTO kit.bag SELECT 'b' || g, g FROM generate_series(1, %s) g", count)
        self._change(
            "INSERT INTO kit.bag_full SELECT %s, g %% 3 FROM generate_series(1, %s) g",
            string(3)(self._rng), min(count, 5),
        )  # fmt: skip

    def _change_bag(self) -> None:
        limit = (
            "ctid IN (SELECT ctid FROM kit.bag_full WHERE n = %s LIMIT 3 FOR UPDATE SKIP LOCKED)"
        )
        number = self._rng.randint(0, 2)
        if self._rng.random() < 0.5:
            self._change(
                f"UPDATE kit.bag_full SET v = %s WHERE {limit}", string(3)(self._rng), number
            )
        else:
            self._change(f"DELETE FROM kit.bag_full WHERE {limit}", number)

    def _insert_no_columns(self) -> None:
        self._change("INSERT INTO kit.no_columns DEFAULT VALUES")

    # --- truncates ---------------------------------------------------------------------

    def _insert_family(self) -> None:
        parent = self._fresh()
        self._change("INSERT INTO kit.parent VALUES (%s, 'p')", parent)
        self._change("INSERT INTO kit.child VALUES (%s, %s, 'c')", self._fresh(), parent)

    def _truncate(self) -> None:
        statement, tables = self._rng.choice(
            (
                ("TRUNCATE kit.parent CASCADE", 2),
                ("TRUNCATE kit.child, kit.bag RESTART IDENTITY", 2),
                ("TRUNCATE kit.child", 1),
                ("TRUNCATE kit.no_columns, kit.bag_full", 2),
            )
        )
        self._sql(statement)
        self._changes += tables

    # --- schema changes ----------------------------------------------------------------

    def _use_shape(self) -> None:
        self._change("INSERT INTO kit.shape (id) VALUES (%s)", self._fresh())
        self._change("UPDATE kit.shape SET id = id WHERE id = %s", self._known())

    def _change_shape(self) -> None:
        self._sql("LOCK TABLE kit.shape IN ACCESS EXCLUSIVE MODE")
        columns = [
            str(row[0])
            for row in self._sql(
                "SELECT attname FROM pg_attribute WHERE attrelid = 'kit.shape'::regclass "
                "AND attnum > 0 AND NOT attisdropped AND attname NOT IN ('id') ORDER BY attnum"
            )
        ]
        self._columns += 1
        name = f"s{self._index}_{self._columns}"
        action = self._rng.randint(0, 4 if self._hidden_ddl else 2)
        if action == 0 or not columns:
            self._sql(
                f"ALTER TABLE kit.shape ADD {name} {self._rng.choice(('int4', 'text', 'date'))}"
            )
        elif action == 1:
            self._sql(f"ALTER TABLE kit.shape DROP {self._rng.choice(columns)}")
        elif action == 2:
            self._sql(f"ALTER TABLE kit.shape RENAME {self._rng.choice(columns)} TO {name}")
        elif action == 3:
            column = self._rng.choice(columns)
            self._sql(f"ALTER TABLE kit.shape ALTER {column} TYPE text USING {column}::text")
        else:
            self._replace_shape(name)
        self._change("UPDATE kit.shape SET id = id")

    def _replace_shape(self, name: str) -> None:
        """Drop the table and make it anew, or hand its name to another table."""
        self._sql("TRUNCATE kit.shape")
        self._changes += 1
        if self._rng.random() < 0.5:
            self._sql("DROP TABLE kit.shape")
        else:
            self._sql(f"ALTER TABLE kit.shape RENAME TO {name}_old")
            self._sql(f"ALTER TABLE kit.{name}_old SET SCHEMA public")
            self._change(f"INSERT INTO public.{name}_old (id) VALUES (1), (2)")
        self._sql(f"CREATE TABLE kit.shape (id int8 PRIMARY KEY, {name} numeric(8,2), b text)")
        self._change("INSERT INTO kit.shape VALUES (%s, 1.5, 'new')", self._fresh())

    # --- the rest ----------------------------------------------------------------------

    def _use_weird(self) -> None:
        text = string(20)
        self._change(
            f'INSERT INTO {_WEIRD_MARKED} (id, "ID", "Id", gd_op, gd_seq, "sp ace", "😀", _lead) '
            "VALUES (%s, %s, 7, %s, 8, %s, %s, 'l')",
            self._fresh(), *[text(self._rng) for _ in range(4)],
        )  # fmt: skip
        self._change(f'UPDATE {_WEIRD_MARKED} SET "sl/ash" = %s WHERE id = %s', "s", self._known())
        if self._rng.random() < 0.3:
            self._change(f"DELETE FROM {_WEIRD_MARKED} WHERE id = %s", self._known())

    def _message(self) -> None:
        content = f"{self._index}-{self._fresh()}-{string(10)(self._rng)}"
        if self._rng.random() < 0.5:
            self._sql("SELECT pg_logical_emit_message(true, 'kit in', %s)", content)
            self._changes += 1
        else:
            self._sql("SELECT pg_logical_emit_message(false, 'kit out', %s)", content)
            self.messages.append(content)

    def _savepoint(self) -> None:
        before = self._changes
        self._savepoints += 1
        name = f"s{self._savepoints}"
        self._sql(f"SAVEPOINT {name}")
        for _ in range(self._rng.randint(1, 4)):
            self._step()
        if self._rng.random() < 0.5:
            self._sql(f"ROLLBACK TO SAVEPOINT {name}")
            self._changes = before
        else:
            self._sql(f"RELEASE SAVEPOINT {name}")


class Workload:
    """Several sessions over one database.

    Args:
        database: where.
        seed: of the random numbers.
        sessions: how many.
        hidden_ddl: whether kit.shape is now and then dropped and made anew, or gets another type by USING.
            The daemon then says that it may have wrong rows, and an apply stops it.

    Attributes:
        workers: one per session.
    """

    def __init__(
        self, database: Database, seed: int, sessions: int = 3, *, hidden_ddl: bool = True
    ) -> None:
        self._database = database
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._failures: list[BaseException] = []
        self.workers = [
            Worker(database, seed, index + 1, hidden_ddl=hidden_ddl) for index in range(sessions)
        ]

    def create(self) -> None:
        """Create types and tables."""
        self._database.execute(TYPE_DDL)
        self._database.execute(TABLE_DDL)

    def run(self, transactions: int) -> None:
        """Run that many transactions, spread over the sessions, and wait for them.

        Raises:
            BaseException: what a session failed with.
        """
        self.start(transactions)
        self.finish(stop=False)

    def start(self, transactions: int | None = None, pause: float = 0.0) -> None:
        """Start the sessions in threads; without a number they go on until `finish`."""
        self._stop.clear()
        share = None if transactions is None else -(-transactions // len(self.workers))
        self._threads = [
            threading.Thread(target=self._work, args=(worker, share, pause), daemon=True)
            for worker in self.workers
        ]
        for thread in self._threads:
            thread.start()

    def finish(self, *, stop: bool = True) -> None:
        """Wait for the sessions, after telling them to stop."""
        if stop:
            self._stop.set()
        for thread in self._threads:
            thread.join()
        if self._failures:
            raise self._failures[0]
        self._resolve()

    def _resolve(self) -> None:
        """Commit what a server that went away left prepared."""
        with self._database.connect() as session:
            for (gid,) in run(
                session, "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
            ):
                run(session, f"COMMIT PREPARED '{gid}'")

    def _work(self, worker: Worker, share: int | None, pause: float) -> None:
        """Run one session; a server that goes away is waited for."""
        done = 0
        try:
            while not self._stop.is_set() and (share is None or done < share):
                try:
                    worker.transaction()
                    done += 1
                except psycopg.OperationalError:
                    worker.close()
                    time.sleep(0.1)
                if pause:
                    self._stop.wait(pause)
        except BaseException as error:  # noqa: BLE001 - `finish` raises it
            self._failures.append(error)
        finally:
            worker.close()


def prepare(database: Database, seed: int) -> Workload:
    """Make a workload with its tables, and a slot before its first change."""
    workload = Workload(database, seed)
    workload.create()
    database.create_slot()
    return workload
