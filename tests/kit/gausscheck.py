"""Judges a landing of the simulated GaussDB server against the store itself.

What it asserts, when the daemon has caught up:

* the log and the numbering of rows are whole (`kit.oracle`);
* every committed transaction with rows landed exactly once, under the end of its commit
  record, with its xid, its CSN and as many rows as it has; nothing else landed;
* replaying the landed rows gives the store's tables, value for value;
* nothing was confirmed that the log does not hold, and the client broke no rule.
"""

from collections.abc import Callable
from pathlib import Path

from kit import landing, oracle
from kit.gaussserver import GaussServer
from kit.gaussstore import Committed, Table
from kit.landing import Landing
from kit.oracle import TableState

Wanted = Callable[[Committed], int]


def visible_rows(of: Committed) -> int:
    """How many rows of a transaction a parallel stream with default options brings."""
    if of.origin or of.is_elsewhere:
        return 0
    kept = len(of.changes) - of.rows_after_ddl - _cancelled(of)
    return kept - sum(change.op == "T" for change in of.changes)


def all_rows(of: Committed) -> int:
    """How many rows of a transaction a serial stream of 6.0.0 or newer brings."""
    return 0 if of.origin or of.is_elsewhere else len(of.changes) - _cancelled(of)


def _cancelled(of: Committed) -> int:
    """Rows that an upsert took back, and what took them back."""
    return sum(change.is_speculative and not change.table.is_ustore for change in of.changes)


def check(root: Path, server: GaussServer, rows_of: Wanted = visible_rows) -> Landing:
    """Assert everything; see the head of this module."""
    landed = landing.read(root)
    oracle.check_log(landed.entries)
    oracle.check_order(landed)
    check_transactions(landed, server, rows_of)
    check_tables(landed, server)
    assert not server.violations, server.violations
    assert not server.unknown_queries, server.unknown_queries
    return landed


def check_transactions(landed: Landing, server: GaussServer, rows_of: Wanted) -> None:
    """Assert that exactly the committed transactions landed, each once."""
    expected = {
        of.end_lsn: (of.xid, of.csn, rows_of(of)) for of in server.store.committed if rows_of(of)
    }
    found = {
        row["gd_lsn"]: (row["gd_xid"], row["gd_csn"], row["rows"])
        for row in landed.transactions
        if row["rows"]
    }
    assert len(found) == sum(bool(row["rows"]) for row in landed.transactions)
    missing = expected.keys() - found.keys()
    assert not missing, f"{len(missing)} of {len(expected)} transactions did not land"
    others = found.keys() - expected.keys()
    assert not others, f"{len(others)} transactions landed that did not commit"
    wrong = {lsn: (found[lsn], want) for lsn, want in expected.items() if found[lsn] != want}
    assert not wrong, f"transactions with (landed, committed) facts: {wrong}"


def check_tables(landed: Landing, server: GaussServer) -> None:
    """Assert that replaying the changes gives the tables of the store."""
    again = {where for where, table in server.store.tables.items() if table.is_ustore}
    states = oracle.replay(landed.effective(), again)
    for where, table in server.store.tables.items():
        oracle.compare(where, states.get(where, TableState()), rows_of(server, table))


def rows_of(server: GaussServer, table: Table) -> list[dict[str, str | None]]:
    """What a table holds, as the oracle compares it."""
    return [
        {
            name: value.decode("latin-1") if isinstance(value, bytes) else value
            for name, value in table.row(values).items()
        }
        for values in server.store.contents(table).values()
    ]
