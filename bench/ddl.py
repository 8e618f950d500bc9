"""What do the event triggers that record DDL cost a command?

On each major two databases of one server, of which one has the triggers (`gaussdecode ddl install`). Each
command is run in both, in turns, by one session each, in a transaction of its own, without a wait for the
disk. A created table has ten columns and a key. Milliseconds of CPU time of the session's server process, for the
median and the range of all runs: the time until the answer has also what else the machine does.

With ``--partitions N``: the same of commands on a table with so many partitions, once each. ``CREATE`` makes all
of them in one transaction.

    python bench/ddl.py [--majors N ...] [--runs N] [--partitions N] [--out FILE]
"""

import argparse
from pathlib import Path
from typing import Any, Final

import corpus
from kit.postgres import Database, Postgres, Session, run

from gaussdecode.source.postgresql.ddl import install_sql

_COLUMNS: Final = "id int PRIMARY KEY, " + ", ".join(f"c{n} int DEFAULT {n}" for n in range(9))
_COMMANDS: Final = {
    "CREATE": f"CREATE TABLE {{t}} ({_COLUMNS})",
    "ALTER": "ALTER TABLE {t} ADD more text DEFAULT 'x'",
    "DROP": "DROP TABLE {t}",
}
_ON_PARTITIONS: Final = {
    "CREATE": "DO $$ BEGIN FOR i IN 1..{n} LOOP EXECUTE format('CREATE TABLE p%s PARTITION OF p FOR VALUES "
    "FROM (%s) TO (%s)', i, i, i + 1); END LOOP; END $$",
    "ADD": "ALTER TABLE p ADD more text DEFAULT 'x'",
    "RENAME": "ALTER TABLE p RENAME c1 TO d1",
    "TYPE": "ALTER TABLE p ALTER c2 TYPE bigint",
    "DETACH": "ALTER TABLE p DETACH PARTITION p1",
    "ATTACH": "ALTER TABLE p ATTACH PARTITION p1 FOR VALUES FROM (1) TO (2)",
    "TRUNCATE": "TRUNCATE p",
    "DROP": "DROP TABLE p",
}


def timed(session: Session, statement: str) -> float:
    """Milliseconds of CPU time of a statement."""
    process = Path(f"/proc/{session.info.backend_pid}/schedstat")
    began = _nanoseconds(process)
    run(session, statement)
    return (_nanoseconds(process) - began) / 1e6


def _nanoseconds(process: Path) -> int:
    return int(process.read_text().split()[0])


def each(plain: Session, recorded: Session, runs: int) -> dict[str, Any]:
    """Figures of each command, on ordinary and on temporary tables."""
    found = {}
    for kind in ("table", "temporary table"):
        prefix = "pg_temp." if kind != "table" else ""
        for name, command in _COMMANDS.items():
            statements = [command.format(t=f"{prefix}t{number}") for number in range(runs)]
            # In turns: what else the machine does falls on both.
            pairs = [(timed(plain, text), timed(recorded, text)) for text in statements]
            without, with_triggers = zip(*pairs, strict=True)
            found[f"{name}, {kind}"] = {
                "without": corpus.spread(without),
                "with": corpus.spread(with_triggers),
                "more": corpus.spread([b - a for a, b in pairs]),
            }
    return found


def on_partitions(plain: Session, recorded: Session, count: int) -> dict[str, Any]:
    """Figures of commands on a table with partitions."""
    for session in (plain, recorded):
        run(session, f"CREATE TABLE p ({_COLUMNS}) PARTITION BY RANGE (id)")
    return {
        name: {
            kind: round(timed(session, command.replace("{n}", str(count))), 1)
            for kind, session in (("without", plain), ("with", recorded))
        }
        for name, command in _ON_PARTITIONS.items()
    }


def measure(major: int, runs: int, partitions: int) -> dict[str, Any]:
    """All figures of one major."""
    settings = {"synchronous_commit": "off", "max_locks_per_transaction": "2000"}
    with Postgres(major, settings) as server:
        databases = [Database(server, name) for name in ("plain", "recorded")]
        databases[1].execute(install_sql())
        databases[1].create_slot()
        with databases[0].connect() as plain, databases[1].connect() as recorded:
            each(plain, recorded, 3)  # caches of the sessions
            found = {"major": major, "milliseconds": each(plain, recorded, runs)}
            if partitions:
                parted = on_partitions(plain, recorded, partitions)
                found |= {"partitions": partitions, "milliseconds_of_partitions": parted}
        for database in databases:
            database.drop()
    return found


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--majors", type=int, nargs="+", default=[15, 18])
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--partitions", type=int, default=0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    points = [measure(major, args.runs, args.partitions) for major in args.majors]
    corpus.write_result(args.out, {"bench": "ddl", "points": points, "machine": corpus.machine()})


if __name__ == "__main__":
    main()
