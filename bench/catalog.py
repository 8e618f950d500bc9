"""What does it cost a server to be asked, before each entry, what changed in its catalogue?

Databases with more and more tables of twenty columns and a key. In each, over one connection, in turns:

    poll    the question that is asked before each entry: what is newer than at the look before
    changed the same after ALTER TABLE on one table: its state is read too
    whole   the states of all tables, as at a start
    base    SELECT count(*) FROM pg_attribute: what one walk over the largest catalogue costs

Milliseconds of the server: the execution time that EXPLAIN ANALYZE says for `poll` and `base`, which
is more than without it; from the question to the answer for the others.

    python bench/catalog.py [--major N] [--tables N ...] [--runs N] [--out FILE]
"""

import argparse
import re
import time
from pathlib import Path
from typing import Any, Final

import corpus
from kit.postgres import Database, Postgres

from gaussdecode.source.address import SourceAddress
from gaussdecode.source.postgresql import fingerprints
from gaussdecode.source.postgresql.connection import Connection, connect

_COLUMNS: Final = ", ".join(f"c{number} int" for number in range(18))
_TIME: Final = re.compile(r"Execution Time: ([0-9.]+) ms")
_BASE: Final = "SELECT count(*) FROM pg_catalog.pg_attribute"
_BATCH: Final = 500  # tables in a transaction


class Asked(Connection):
    """Remembers the last question, to have it explained."""

    last = ""

    def query(self, command: str) -> Any:  # Any: as `Connection`
        """Ask, and remember."""
        self.last = command
        return super().query(command)


def explained(connection: Connection, question: str) -> float:
    """Milliseconds that the server says it took."""
    rows = connection.query(f"EXPLAIN (ANALYZE, TIMING OFF) {question}")
    found = next(_TIME.search(row[0] or "") for row in reversed(rows) if "Execution" in str(row[0]))
    assert found is not None
    return float(found[1])


def measure(server: Postgres, tables: int, runs: int) -> dict[str, Any]:
    """All figures of one database."""
    database = Database(server, f"catalog_{tables}")
    with database.connect() as session:
        for first in range(0, tables, _BATCH):
            session.execute(
                f"DO $$ BEGIN FOR i IN {first}..{min(first + _BATCH, tables) - 1} LOOP EXECUTE format("
                f"'CREATE TABLE t%s (id int PRIMARY KEY, {_COLUMNS}, note text)', i); END LOOP; END $$"
            )
        session.execute("VACUUM ANALYZE")
    address = SourceAddress(f"{database.dsn} sslmode=disable", None, is_insecure_allowed=True)
    found: dict[str, list[float]] = {"poll": [], "changed": [], "whole": [], "base": []}
    with connect(address, is_replication=False) as connection:
        asked = Asked(connection.pgconn, connection.libpq, None)
        looker = fingerprints.Looker(asked, [database.publication])
        began = time.perf_counter()
        look = looker.look(None, {}, {}, {}, is_whole=True)
        found["whole"].append(1000 * (time.perf_counter() - began))
        known = dict(look.tables)
        for run in range(runs):
            look = looker.look(look.mark, look.publications, known, {})
            assert look.listed is None
            found["poll"].append(explained(connection, asked.last))
            found["base"].append(explained(connection, _BASE))
            database.execute(f"ALTER TABLE t{run} ADD more int")
            began = time.perf_counter()
            look = looker.look(look.mark, look.publications, known, {})
            found["changed"].append(1000 * (time.perf_counter() - began))
            assert len(look.tables) == 1
            known |= look.tables
    database.drop()
    milliseconds = {name: corpus.spread(values) for name, values in found.items()}
    return {"tables": tables, "milliseconds": milliseconds}


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--major", type=int, default=18)
    parser.add_argument("--tables", type=int, nargs="+", default=[10, 1000, 10_000])
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with Postgres(args.major) as server:
        points = [measure(server, tables, args.runs) for tables in args.tables]
    result = {"bench": "catalog", "major": args.major, "points": points}
    corpus.write_result(args.out, {**result, "machine": corpus.machine()})


if __name__ == "__main__":
    main()
