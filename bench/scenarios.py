"""The recordings that `cost.py` lands.

narrow, wide
    pgoutput of a real server, of the shapes of those names; its rows repeat after so many.
gaussdb
    GaussDB's style b in batches, as `gaussdb.py` has it, from the simulated server; its rows
    repeat after about as many bytes as those of `narrow`.
gaussdb-repeating
    the same, but its rows repeat after 8 MB, as those that `gaussdb.py` sends do: dictionaries
    and compression find them again within a row group.
"""

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Final

import corpus
import gaussdb
import recording
import replay
from kit.postgres import Database

from gaussdecode.demo.ports import free_port

_UNIQUE_BYTES: Final = 128 << 20
_COLUMNS, _ROW_BYTES = 20, 500
_LIMIT_SECONDS: Final = 600


@dataclasses.dataclass(frozen=True, slots=True)
class Scenario:
    """A stream to be recorded.

    Attributes:
        name: of it.
        shape: of the server's table; None for GaussDB's load.
        decoders: what it is landed with, where nothing else is said: style b needs two.
        cycle_bytes: of GaussDB's load: its rows repeat after so many.
    """

    name: str
    shape: str | None
    decoders: int
    cycle_bytes: int = _UNIQUE_BYTES


SCENARIOS: Final = {
    each.name: each
    for each in (
        Scenario("narrow", "narrow", 1),
        Scenario("wide", "wide", 1),
        Scenario("gaussdb", None, 2),
        Scenario("gaussdb-repeating", None, 2, 8 << 20),
    )
}


@dataclasses.dataclass(frozen=True, slots=True)
class Recorded:
    """A recording.

    Attributes:
        path: of the file.
        unique_bytes: its rows repeat after so many.
    """

    path: Path
    unique_bytes: int


def record(scenario: Scenario, directory: Path, total: int) -> Recorded:
    """Record about so many bytes into a directory."""
    if scenario.shape is None:
        return _from_gaussdb(scenario, directory, total)
    return _from_postgres(scenario.name, scenario.shape, directory, total)


def _from_postgres(name: str, shape: str, directory: Path, total: int) -> Recorded:
    rows = corpus.ROWS[shape]
    with corpus.start_server() as server:
        database = Database(server, "bench_scenario")
        corpus.make_table(database, shape, rows)
        database.create_slot()
        corpus.fill_table(database, shape, rows)
        full = replay.record(database, directory, "full")
    path, unique = directory / f"{name}.capture", full.stat().st_size
    recording.grow(full, path, max(1, round(total / unique)))
    full.unlink()
    return Recorded(path, unique)


def _from_gaussdb(scenario: Scenario, directory: Path, total: int) -> Recorded:
    load = gaussdb.Load(_COLUMNS, _ROW_BYTES, cycle_bytes=min(scenario.cycle_bytes, total))
    path = directory / f"{scenario.name}.capture"
    with gaussdb.load_server(load) as facts:
        config = gaussdb.configure(facts, directory, scenario.decoders, free_port())
        subprocess.run(
            [sys.executable, "-m", "gaussdecode", "capture", str(config), str(path), "--follow",
             "--size", f"{total}B", "--seconds", str(_LIMIT_SECONDS)],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        return Recorded(path, facts["cycle_bytes"])
