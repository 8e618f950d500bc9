"""Define the demo's database, a small shop with columns of many types, and its sessions.

Customers, orders and their lines with keys of several kinds; documents stored out of
line; measurements without a key; an audit trail that only grows; a table with an odd
name. `Shopper` is one session that works on all of them, seeded.
"""

import random
import threading
from typing import Any, Final

import psycopg

Session = psycopg.Connection[tuple[Any, ...]]  # Any: whatever a query selects
SCHEMA: Final = "shop"

DDL: Final = """
CREATE SCHEMA shop;
CREATE TYPE shop.state AS ENUM ('new', 'paid', 'sent', 'returned');
CREATE DOMAIN shop.email AS text CHECK (VALUE LIKE '%@%');
CREATE TABLE shop.customer (
    id bigint PRIMARY KEY, name varchar(80) NOT NULL, email shop.email, active boolean,
    balance numeric(12,2), rating real, born date, tags text[], profile jsonb,
    joined timestamptz);
CREATE TABLE shop.orders (
    id uuid PRIMARY KEY, customer bigint, state shop.state, placed timestamp(3),
    total numeric(14,2), patience interval, note text);
CREATE TABLE shop.line (
    orders uuid, number smallint, product text, quantity integer, price numeric(10,2),
    PRIMARY KEY (orders, number));
CREATE TABLE shop.document (
    id bigint PRIMARY KEY, title text, reads integer, body text, scan bytea);
ALTER TABLE shop.document ALTER body SET STORAGE EXTERNAL, ALTER scan SET STORAGE EXTERNAL;
CREATE TABLE shop.measurement (
    sensor integer, taken timestamptz, value double precision, address inet, span int4range);
ALTER TABLE shop.measurement REPLICA IDENTITY FULL;
CREATE TABLE shop.audit (at timestamptz, who text, what json);
CREATE TABLE shop.basket (id bigint PRIMARY KEY, items integer[]);
CREATE TABLE shop."Größen / sizes" ("Größe" text PRIMARY KEY, "in cm" numeric);
CREATE PUBLICATION gaussdecode_demo FOR ALL TABLES;
"""

# Rows that are there before the slot is made: they land as they are, as operation R.
STOCK: Final = """
INSERT INTO shop.customer (id, name, email, active, balance, born, tags, joined)
SELECT g, 'customer ' || g, g || '@example.org', true, g / 7.0, date '1970-01-01' + g, '{early}', now()
FROM generate_series(1, 500) g;
INSERT INTO shop.basket SELECT g, ARRAY[g, g + 1] FROM generate_series(1, 200) g;
INSERT INTO shop.audit SELECT now(), 'stock', json_build_object('line', g) FROM generate_series(1, 300) g;
"""

# Halfway through, while everybody works.
SCHEMA_CHANGE: Final = "ALTER TABLE shop.customer ADD loyalty integer"
BULK: Final = """
INSERT INTO shop.measurement
SELECT g %% 100, now() + g * interval '1 ms', random() * 100, '10.0.0.1', int4range(g, g + 9)
FROM generate_series(1, %s) g
"""

_NAMES: Final = ("Ada", "José", "Зоя", "明", "Zoë 😀", "O'Neill", "")
_PLACE: Final = "INSERT INTO shop.orders VALUES (%s, %s, 'new', now(), %s, '3 days 02:00', %s)"
_DOCUMENT: Final = "INSERT INTO shop.document VALUES (%s, %s, 0, %s, %s)"
_SIZE: Final = (
    'INSERT INTO shop."Größen / sizes" VALUES (%s, %s) '
    'ON CONFLICT ("Größe") DO UPDATE SET "in cm" = excluded."in cm"'
)


class Shopper(threading.Thread):
    """One session that changes rows until it is stopped.

    Args:
        dsn: connection string of the database.
        index: number of the session, from 1; its rows do not collide with others'.
        stop: set when it is time to go.

    Attributes:
        transactions: committed so far.
        changes: rows changed in them.
        failure: what ended it early, or None.
    """

    def __init__(self, dsn: str, index: int, stop: threading.Event) -> None:
        super().__init__(name=f"shopper {index}", daemon=True)
        self._dsn = dsn
        self._index = index
        self._stop_event = stop
        self._rng = random.Random(index)
        self._last = 0
        self._open = 0
        self.transactions = 0
        self.changes = 0
        self.failure: psycopg.Error | None = None

    def run(self) -> None:
        """Work, transaction by transaction."""
        steps = (
            self._register,
            self._order,
            self._order,
            self._write,
            self._measure,
            self._browse,
            self._resize,
        )
        try:
            with psycopg.connect(self._dsn, autocommit=True) as session:
                while not self._stop_event.is_set():
                    self._transaction(session, self._rng.choices(steps, k=self._rng.randint(1, 6)))
        except psycopg.Error as error:
            self.failure = error

    def _transaction(self, session: Session, steps: list[Any]) -> None:  # Any: bound methods
        """Run some steps; one transaction in twenty is rolled back."""
        self._open = 0
        try:
            with session.transaction() as transaction:
                for step in steps:
                    step(session)
                    if self._rng.random() < 0.1:  # a savepoint that comes to nothing
                        with session.transaction() as inner:
                            session.execute("INSERT INTO shop.audit VALUES (now(), 'x', '{}')")
                            raise psycopg.Rollback(inner)
                if self._rng.random() < 0.05:
                    raise psycopg.Rollback(transaction)
                self._change(
                    session,
                    "INSERT INTO shop.audit VALUES (now(), %s, %s)",
                    self.name,
                    f'{{"steps": {len(steps)}}}',
                )
        except (psycopg.errors.DeadlockDetected, psycopg.errors.LockNotAvailable):
            return
        self.transactions += bool(self._open)
        self.changes += self._open

    def _change(self, session: Session, query: str, *values: object) -> None:
        self._open += session.execute(query, values).rowcount

    def _fresh(self) -> int:
        self._last += 1
        return self._index * 1_000_000_000 + self._last

    def _known(self) -> int:
        return self._index * 1_000_000_000 + self._rng.randint(1, max(1, self._last))

    def _register(self, session: Session) -> None:
        number = self._fresh()
        self._change(
            session,
            "INSERT INTO shop.customer (id, name, email, active, balance, rating, born, tags, "
            "profile, joined) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, now())",
            number,
            self._rng.choice(_NAMES),
            f"{number}@example.org",
            self._rng.choice((True, False, None)),
            round(self._rng.uniform(-1e6, 1e6), 2),
            self._rng.random(),
            "1970-01-01",
            ["new", None, 'a "b"'],
            '{"colour": "blue"}',
        )
        self._change(
            session,
            "UPDATE shop.customer SET balance = balance + 1, tags = '{}' WHERE id = %s",
            self._known(),
        )
        if self._rng.random() < 0.2:
            self._change(session, "DELETE FROM shop.customer WHERE id = %s", self._known())

    def _order(self, session: Session) -> None:
        order = f"{self._rng.getrandbits(128):032x}"
        count = self._rng.randint(1, 8)
        self._change(
            session, _PLACE, order, self._known(), count * 10, "n" * self._rng.randint(0, 90)
        )
        for number in range(1, count + 1):
            self._change(
                session,
                "INSERT INTO shop.line VALUES (%s, %s, %s, %s, 9.99)",
                order,
                number,
                f"product {self._rng.randint(1, 500)}",
                self._rng.randint(1, 9),
            )
        self._change(session, "UPDATE shop.orders SET state = 'paid' WHERE id = %s", order)
        if self._rng.random() < 0.2:
            self._change(
                session, "UPDATE shop.line SET number = number + 100 WHERE orders = %s", order
            )
        if self._rng.random() < 0.1:
            self._change(session, "DELETE FROM shop.line WHERE orders = %s", order)

    def _write(self, session: Session) -> None:
        body = self._rng.randbytes(self._rng.choice((20, 4000))).hex()
        self._change(session, _DOCUMENT, self._fresh(), "title", body, body.encode())
        if self._rng.random() < 0.2:  # the body is not sent again: stored out of line, unchanged
            self._change(
                session,
                "UPDATE shop.document SET reads = reads + 1 WHERE id BETWEEN %s AND %s + 3",
                *[self._known()] * 2,
            )

    def _measure(self, session: Session) -> None:
        self._change(session, BULK, self._rng.choice((1, 10, 100)))
        if self._rng.random() < 0.1:
            self._change(
                session,
                "DELETE FROM shop.measurement WHERE ctid IN (SELECT ctid FROM shop.measurement "
                "WHERE sensor = %s LIMIT 3 FOR UPDATE SKIP LOCKED)",
                self._rng.randint(0, 99),
            )

    def _browse(self, session: Session) -> None:
        self._change(
            session, "INSERT INTO shop.basket VALUES (%s, %s)", self._fresh(), [1, None, 3]
        )
        if self._rng.random() < 0.01:
            session.execute("TRUNCATE shop.basket")
            self._open += 1

    def _resize(self, session: Session) -> None:
        size = self._rng.choice("SMLX") * self._rng.randint(1, 2)
        self._change(session, _SIZE, f"{size} {self._index}", self._rng.randint(30, 90))
