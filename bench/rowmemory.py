"""What does one huge row cost in memory, over all processes of the daemon?

A server sends one row with a text of so many bytes, and the daemon lands it: a real PostgreSQL, by
number of decoders, and a simulated GaussDB, by decode-style (`b` with sending-batch: `bb`; `s` is
the serial mode). Twenty times a second the processes' memory is added up: heap, stacks and shared queues (`Pss` of
smaps_rollup, less what is of files), so that nothing shared counts twice. `row` is the most of
the sum above what it was before the row, over the size of the row; `at_peak` says who held it.

    python bench/rowmemory.py [--bytes N ...] [--decoders N ...] [--styles STYLE ...]
        [--major N] [--out FILE]
"""

import argparse
import itertools
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import corpus
from kit.daemon import Daemon
from kit.gaussdaemon import GaussDaemon, GaussDatabase
from kit.gaussserver import GaussServer
from kit.gausssql import Catalogue
from kit.gaussstore import Store
from kit.memory import MemoryWatch
from kit.postgres import Database, Postgres

_CATALOGUE_MAJOR: Final = 15  # that the simulated server answers queries from
_LANDING: Final = {"max-commit-interval": "1s"}


def measure(daemon: Daemon, size: int, insert: Callable[[int, int], object]) -> dict[str, Any]:
    """Land one row of so many bytes.

    Args:
        daemon: not yet started.
        size: of the row.
        insert: commits a row with this id and about so many bytes.
    """
    with daemon:
        insert(1, 32)
        daemon.catch_up()
        watch = MemoryWatch(daemon)
        watch.start()
        insert(2, size)
        daemon.catch_up()
        watch.end()
        daemon.stop()
    return {
        "row_bytes": size,
        "rows": round(watch.grown / size, 2),
        "before": watch.before,
        "at_peak": {name: round(held / size, 2) for name, held in watch.peak.items()},
    }


def postgres_row(server: Postgres, size: int, decoders: int, directory: Path) -> dict[str, Any]:
    """Land a row of PostgreSQL."""
    database = Database(server, f"row_{decoders}_{size}")
    database.execute("CREATE TABLE public.t (id int4 PRIMARY KEY, v text)")
    database.create_slot()
    config = {"decoding": {"parallel-decode-num": decoders}, "landing": _LANDING}

    def insert(number: int, row_bytes: int) -> None:
        database.execute(
            f"INSERT INTO public.t SELECT {number}, string_agg(md5(g::text), '') "
            f"FROM generate_series(1, {row_bytes // 32}) g"
        )

    measured = measure(Daemon(database, directory, config=config), size, insert)
    return {"source": "postgresql", "decoders": decoders, **measured}


def gaussdb_row(server: GaussServer, size: int, style: str, directory: Path) -> dict[str, Any]:
    """Land a row of a simulated GaussDB."""
    letter, is_batched = style[0], len(style) > 1
    database = GaussDatabase(server, f"row_{style}_{size}")
    columns = {"id": "int4", "v": "text"}
    table = server.store.create_table("public", database.slot, columns, key=["id"])
    parallel = {"decode-style": letter, "sending-batch": int(is_batched), "parallel-decode-num": 2}
    decoding: dict[str, object] = {"parallel-decode-num": 1} if letter == "s" else parallel
    config = {"decoding": decoding, "landing": _LANDING}

    def insert(number: int, row_bytes: int) -> None:
        transaction = server.store.begin()
        text = random.Random(number).randbytes(row_bytes // 2).hex()
        transaction.insert(table, {"id": str(number), "v": text})
        transaction.commit()

    measured = measure(GaussDaemon(database, directory, config=config), size, insert)
    return {"source": "gaussdb", "style": style, **measured}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=int, nargs="+", default=[100_000_000, 400_000_000])
    parser.add_argument("--decoders", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--styles", nargs="*", default=["b", "bb", "tb", "jb", "s"])
    parser.add_argument("--major", type=int, default=18)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    results = []
    with Postgres(args.major, {"wal_sender_timeout": "10min"}) as server:
        for size, decoders in itertools.product(args.bytes, args.decoders):
            with tempfile.TemporaryDirectory() as name:
                results.append(postgres_row(server, size, decoders, Path(name)))
    with Postgres(_CATALOGUE_MAJOR) as server:
        for size, style in itertools.product(args.bytes, args.styles):
            with (
                GaussServer(Store(), catalogue=Catalogue(server)) as gauss,
                tempfile.TemporaryDirectory() as name,
            ):
                results.append(gaussdb_row(gauss, size, style, Path(name)))
    corpus.write_result(
        args.out, {"bench": "rowmemory", "results": results, "machine": corpus.machine()}
    )


if __name__ == "__main__":
    main()
