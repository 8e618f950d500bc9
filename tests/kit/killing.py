"""Apply in a process that is killed at a step, or beside another one, and what a target then holds."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from gaussdecode.spark.apply import Options, apply_with
from gaussdecode.spark.log.landing import Landing, Point
from gaussdecode.spark.log.place import Given
from gaussdecode.spark.merge.engine import LocalEngine
from gaussdecode.spark.merge.sizing import Sizes
from gaussdecode.spark.target.deletion_vectors import current_rows
from gaussdecode.spark.target.failpoint import VARIABLE
from gaussdecode.spark.target.store import Target
from kit.history import canon

BESIDE = Sizes(small_bucket=0, share=1000.0)
OPTIONS = Options(history=True, vectors=True, changelog="gd_commit_date", buckets=2, sizes=BESIDE)


class Places(NamedTuple):
    """A landing, and a place for a target."""

    landing: str
    target: str


def content(target: Given) -> dict[str, list[str]]:
    """All rows of the newest versions the database names, by table and kind."""
    store = Target(target)
    database = store.database()
    assert database is not None
    found = {"n": [str(database.n)]}
    for table, v in database.tables.items():
        version = store.version(table, v)
        names = store.schema(table, version.schema_id).names
        for kind in ("current", "closed", "changelog"):
            rows = [
                tuple(row.get(name) for name in (*names, "gd_lsn", "gd_seq", "gd_n", "gd_to_n"))
                for file in getattr(version, kind)
                for row in current_rows(store.table_root(table), file).to_pylist()
            ]
            found[f"{table} {kind}"] = [repr(row) for row in canon(rows)]
    return found


def started(places: Places, point: str | None = None) -> "subprocess.Popen[str]":
    """`spark apply --local` as a process of its own; killed at the point, if one is given."""
    words = [sys.executable, "-m", "gaussdecode", "spark", "apply", *places, "--local"]
    return subprocess.Popen(
        words,
        env={**os.environ, **({VARIABLE: point} if point else {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def kill_and_run_again(point: str, places: Places, whole: Path) -> None:
    """Kill the second apply, look, and apply again."""
    landing, target = places
    apply_with(LocalEngine(), landing, target, OPTIONS, to=Point(n=2))
    before = content(target)
    ended = started(places, point)
    said = ended.communicate()
    assert ended.returncode == -signal.SIGKILL, said
    assert content(target) in (before, content_of(landing, target))
    apply_with(LocalEngine(), landing, target, OPTIONS)
    assert content(target) == content(whole)


def content_of(landing: Given, target: Given) -> dict[str, list[str]]:
    """What the target holds, if it is at the end of the log; else nothing."""
    found = content(target)
    return found if found["n"] == [str(Landing(landing).last_n)] else {}


def unnamed(target: Given) -> set[str]:
    """Files that no version names."""
    store = Target(target)
    found, named = set(), set()
    kept = [store.database(k) for k in store.database_versions()]
    for table in store.tables():
        log = store.log(table)
        versions = {of.tables[table] for of in kept if of is not None and table in of.tables}
        paths = log.paths().union(*(log.version(v).paths for v in versions))
        named |= {f"{table}/{path}" for path in paths}
        found |= {f"{table}/{file.path}" for file in log.files()}
    assert named <= found
    return found - named
