"""What do the two other ways to ask a server for changes bring: in binary, and while they are open?

Decoding: `ns_per_value` of CPU time for the same values as text and in binary, one core, the best of
41 runs in turn; `ratio` is text's over binary's.

Binary: tables of eight columns of one type each, with uneven values (NULLs, lengths), are
landed as text and in binary, run by run and in turn, on copies of one slot; everything waits
on the server when the daemon starts. `ratio` is text's seconds over binary's, run by run;
`wire_ratio` its bytes over binary's; `cpu_ratio` the same of the daemon's CPU seconds.

Streaming: one transaction of many rows is committed while a daemon follows its slot, once
sent whole and once streamed while it is open; `seconds` are those from the COMMIT until its entry is
durable. `server_bytes` is what the server spilled to its disk, or streamed, for it.

    python bench/asked.py [--rows N] [--open-rows N] [--runs N] [--out FILE]
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import corpus
import live
from kit import wire
from kit.daemon import Daemon
from kit.postgres import Database, Postgres, run

from gaussdecode._wire import BatchDecoder
from gaussdecode.model.types import column_type
from gaussdecode.wire.formats import TypeFacts, formats_of

COLUMNS: Final = 8
DECODED_ROWS: Final = 3000
DECODE_RUNS: Final = 41
# By name: type, and a value of row g and column c.
TYPES: Final = {
    "numeric": ("numeric(18,4)", "(hashint8(g * 8 + {c})::numeric / 7919)::numeric(18,4)"),
    "timestamptz": (
        "timestamptz", "timestamptz '2000-01-01' + make_interval(secs => hashint8(g + {c}) / 7.0)"
    ),
    "uuid": ("uuid", "md5((g * 8 + {c})::text)::uuid"),
    "bytea": ("bytea", "decode(repeat(md5((g + {c})::text), 1 + (g % 5)::int), 'hex')"),
    "int8": ("int8", "hashint8(g * 8 + {c})::int8 * (g % 1000)"),
    "text": ("text", "repeat(md5((g + {c})::text), (g % 3)::int)"),
}  # fmt: skip
# Only decoded: the rest of what is held as it is, and of what is spelled.
MORE: Final = {
    "bool": ("bool", "g % 2 = 0"),
    "int4": ("int4", "hashint8(g * 8 + {c})"),
    "float8": ("float8", "hashint8(g * 8 + {c}) / 7.0::float8"),
    "date": ("date", "date '2000-01-01' + hashint8(g + {c}) % 20000"),
    "interval": ("interval", "make_interval(secs => hashint8(g) / 7.0)"),
    "jsonb": ("jsonb", "jsonb_build_object('a', g, 'b', repeat('x', (g % 20)::int))"),
    "xid8": ("xid8", "g::text::xid8"),
    "macaddr": ("macaddr", "('08:00:2b:01:' || lpad(to_hex(g % 256), 2, '0') || ':03')::macaddr"),
    "inet": ("inet", "('10.0.' || g % 256 || '.' || g * 7 % 256)::inet"),
    "time": ("time", "time '00:00' + make_interval(secs => abs(hashint8(g)) / 7.0)"),
    "varbit": ("varbit", "hashint8(g)::bit(20)::varbit"),
    "point": ("point", "point(g, hashint8(g) / 7.0)"),
    "tsvector": ("tsvector", "to_tsvector('simple', md5(g::text) || ' ' || md5((g + 1)::text))"),
}


# What an entry waits for more is not what is measured.
SIZES: Final = {**live.SIZES, "max-commit-interval": "300ms"}


def fill(database: Database, name: str, rows: int) -> None:
    """One table of a type; every ninth value is NULL."""
    kind, value = TYPES[name]
    columns = ", ".join(f"c{c} {kind}" for c in range(COLUMNS))
    values = ", ".join(
        f"CASE WHEN (g + {c}) % 9 = 0 THEN NULL ELSE {value.format(c=c)} END"
        for c in range(COLUMNS)
    )
    database.execute(f"CREATE TABLE public.t (id int8 PRIMARY KEY, {columns})")
    database.create_slot()
    for start in range(0, rows, 1000):
        database.execute(
            f"INSERT INTO public.t SELECT g, {values} FROM generate_series({start + 1}, {start + 1000}) g"
        )


def decoding(server: Postgres, name: str) -> dict[str, float]:
    """Nanoseconds for a value, as text and in binary."""
    kind, value = {**TYPES, **MORE}[name]
    with server.connect() as session:
        session.execute("SET TimeZone = 'UTC'")
        (facts,) = run(
            session,
            "SELECT oid, typoutput::regproc::text, typsend::regproc::text FROM pg_type "
            f"WHERE oid = '{kind}'::regtype",
        )
        oid, printed, sent = int(facts[0]), str(facts[1]), str(facts[2])
        modifier = (18 << 16 | 4) + 4 if "(" in kind else -1
        rows = run(
            session,
            f"SELECT {printed}(v), {sent}(v) FROM (SELECT {value.format(c=0)} AS v "
            f"FROM generate_series(1, {DECODED_ROWS * COLUMNS}) g) s",
        )
    relation = wire.relation([column_type(oid, modifier, None)[0]] * COLUMNS, identity=())
    of = formats_of([TypeFacts(oid, sent, printed)])[oid]
    raws = {}
    for index, form in enumerate(("text", "binary")):
        cells = [wire.Binary(row[1]) if index else str(row[0]) for row in rows]
        messages = [
            wire.insert(cells[at : at + COLUMNS], relation.oid)
            for at in range(0, len(cells), COLUMNS)
        ]
        raws[form] = wire.raw_batch(messages, [relation], formats=[of] * COLUMNS if index else None)
    times: dict[str, list[int]] = {form: [] for form in raws}
    decoders = {form: BatchDecoder() for form in raws}
    for _ in range(DECODE_RUNS):
        for form, raw in raws.items():
            began = time.process_time_ns()
            decoders[form].decode_bytes(raw)
            times[form].append(time.process_time_ns() - began)
    found = {form: round(min(each) / len(rows), 1) for form, each in times.items()}
    return {**found, "ratio": round(found["text"] / found["binary"], 2)}


def binary_and_text(
    server: Postgres, name: str, rows: int, runs: int, directory: Path
) -> dict[str, Any]:
    """Land one table in both ways, in turn."""
    database = Database(server, f"bench_{name}")
    fill(database, name, rows)
    end = database.wal_end()
    database.execute("CREATE TABLE public.done (id int4)")
    done: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
    for number in range(runs):
        for is_binary, found in done.items():
            slot = f"s_{name}_{number}_{int(is_binary)}"
            database.copy_slot(slot)
            found.append(
                live.run_daemon(database, slot, end, directory / slot, 1, {"binary": is_binary})
            )
            corpus.drop_slot(database, slot)
    if any(each["landed_rows"] != rows for found in done.values() for each in found):
        raise SystemExit(f"{name}: rows are missing")
    database.drop()

    def ratios(value: Any) -> dict[str, float]:  # Any: a function of a run
        return corpus.spread([value(a) / value(b) for a, b in zip(*done.values(), strict=True)])

    return {
        "text_rows_per_second": corpus.spread([rows / each["seconds"] for each in done[False]]),
        "binary_rows_per_second": corpus.spread([rows / each["seconds"] for each in done[True]]),
        "ratio": ratios(lambda each: each["seconds"]),
        "cpu_ratio": ratios(lambda each: sum(each["cpu_seconds"].values())),
        "wire_ratio": ratios(lambda each: each["wire_bytes"]),
    }


def commit_to_durable(
    server: Postgres, rows: int, streaming: str, directory: Path
) -> dict[str, float]:
    """Seconds from the COMMIT of one transaction of `rows` rows until its entry is durable."""
    database = Database(server, f"bench_open_{streaming}")
    database.execute(
        "CREATE TABLE public.t (id int8 PRIMARY KEY, n int4, at timestamptz, note text)"
    )
    database.create_slot()
    directory.mkdir()
    config = {"source": {"streaming": streaming}, "landing": SIZES}
    daemon = Daemon(database, directory, config=config)
    with daemon, database.connect() as session:
        daemon.wait_for_state("streaming")
        run(session, "BEGIN")
        for start in range(0, rows, 100_000):
            run(
                session,
                "INSERT INTO public.t SELECT g, g % 1000, now(), repeat('x', (g % 40)::int) "
                f"FROM generate_series({start + 1}, {start + 100_000}) g",
            )
        before = -1.0
        while (received := live.wire_bytes(daemon)) != before:  # all that comes while it is open
            before = received
            time.sleep(3.0)
        began = time.perf_counter()
        run(session, "COMMIT")
        database.execute("CREATE TABLE public.done (id int4)")
        while not _landed(daemon, rows):
            time.sleep(0.02)
        seconds = time.perf_counter() - began
        (counts,) = database.execute(
            "SELECT spill_bytes, stream_bytes FROM pg_stat_replication_slots "
            f"WHERE slot_name = '{database.slot}'"
        )
        daemon.stop()
    database.drop()
    return {"seconds": seconds, "spilled_bytes": int(counts[0]), "streamed_bytes": int(counts[1])}


def _landed(daemon: Daemon, rows: int) -> bool:
    return sum(file["rows"] for entry in daemon.entries() for file in entry["files"]) >= rows


def measure(args: argparse.Namespace, server: Postgres, directory: Path) -> dict[str, Any]:
    """Both questions, one after the other."""
    result: dict[str, Any] = {
        "bench": "asked", "rows": args.rows, "open_rows": args.open_rows, "runs": args.runs,
        "decoding": {}, "binary": {}, "open": {}, **corpus.machine(),
    }  # fmt: skip
    for name in [*args.types, *MORE]:
        result["decoding"][name] = decoding(server, name)
        print(f"{name}: ns for a value {result['decoding'][name]}", flush=True)
    for name in args.types if args.rows else ():
        result["binary"][name] = found = binary_and_text(
            server, name, args.rows, args.runs, directory
        )
        print(f"{name}: {found['ratio']['median']:.2f} times as fast, CPU {found['cpu_ratio']['median']:.2f}, "
              f"wire {found['wire_ratio']['median']:.2f}", flush=True)  # fmt: skip
    for streaming in ("off", "on") if args.open_rows else ():
        runs = [
            commit_to_durable(server, args.open_rows, streaming, directory / f"{streaming}{number}")
            for number in range(args.runs)
        ]
        result["open"][streaming] = {
            "seconds": corpus.spread([each["seconds"] for each in runs]),
            "spilled_bytes": runs[-1]["spilled_bytes"],
            "streamed_bytes": runs[-1]["streamed_bytes"],
        }
        print(f"open, streaming {streaming}: {result['open'][streaming]}", flush=True)
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000, help="to land; 0 for none")
    parser.add_argument("--open-rows", type=int, default=2_000_000, help="0 for none")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--types", nargs="*", default=list(TYPES), choices=list(TYPES))
    parser.add_argument("--out", type=Path)
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory, corpus.start_server() as server:
        corpus.write_result(args.out, measure(args, server, Path(directory)))


if __name__ == "__main__":
    main()
