"""Apply killed at every step of an entry, then run again: the same result."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from kit.history import History, canon
from kit.s3 import S3

from gaussdecode.errors import ConfigError, LandingError
from gaussdecode.spark.apply import Options, apply_with
from gaussdecode.spark.engine import LocalEngine
from gaussdecode.spark.failpoint import VARIABLE, Step
from gaussdecode.spark.landing import Landing, Point
from gaussdecode.spark.place import Given
from gaussdecode.spark.spread import Sizes
from gaussdecode.spark.store import Target
from gaussdecode.spark.upkeep import vacuum
from gaussdecode.spark.vectors import current_rows

pytestmark = pytest.mark.crash

# Of vacuum, of `spark snapshot` and of Iceberg; killed there by tests of their own.
ELSEWHERE = (
    Step.FILES_REMOVED, Step.RANGE_READ, Step.RANGE_FINISHED, Step.TABLES_LOADED,
    Step.CATALOG_WRITTEN, Step.CATALOG_COMMITTED,
)  # fmt: skip
SEVERAL = (Step.FILES_DURABLE, Step.MANIFEST_WRITTEN, Step.MANIFEST_LINKED, Step.MANIFEST_DURABLE)
POINTS = [
    *(str(step) for step in Step if step not in ELSEWHERE),
    *(f"{step}:{count}" for step in SEVERAL for count in (2, 4)),
    f"{Step.MANIFEST_LINKED}:5",
]
AT_URL = (Step.FILES_DURABLE, f"{Step.MANIFEST_WRITTEN}:2", f"{Step.MANIFEST_LINKED}:2")


BESIDE = Sizes(small_bucket=0, share=1000.0)
OPTIONS = Options(history=True, vectors=True, changelog="gd_commit_date", buckets=2, sizes=BESIDE)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> tuple[History, Path]:
    """A landing to apply in two steps, and what comes out undisturbed."""
    root = tmp_path_factory.mktemp("source")
    history = History(root / "landing", 31)
    history.run(7)
    for point in (Point(n=2), Point()):
        apply_with(LocalEngine(), root / "landing", root / "whole", OPTIONS, to=point)
    return history, root


class Places(NamedTuple):
    """A landing, and a place for a target."""

    landing: str
    target: str


@pytest.fixture
def at_url(source: tuple[History, Path], s3: S3) -> Places:
    """The landing of `source` in a bucket, and room for a target."""
    bucket = s3.bucket()
    return Places(s3.keep(source[1] / "landing", bucket, "landing"), s3.url(bucket, "a b/tables"))


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


@pytest.mark.parametrize("point", POINTS)
def test_killed_apply_is_run_again(
    point: str, source: tuple[History, Path], tmp_path: Path
) -> None:
    """Readers see the version before or the one after; a second run gives the whole."""
    history, root = source
    target = tmp_path / "target"
    kill_and_run_again(point, Places(str(root / "landing"), str(target)), root / "whole")
    vacuum(target, older_than_seconds=0)
    assert content(target) == content(root / "whole")
    assert unnamed(target) == set()
    assert history.writer.n - 1 == int(content(target)["n"][0])


@pytest.mark.parametrize("point", AT_URL)
def test_killed_apply_on_a_store(
    point: str, source: tuple[History, Path], at_url: Places, s3: S3
) -> None:
    """The same from and to URLs; what was left goes when it is old enough to be nobody's."""
    kill_and_run_again(point, at_url, source[1] / "whole")
    with pytest.raises(ConfigError, match="younger than an hour stays"):
        vacuum(at_url.target, older_than_seconds=0)
    vacuum(at_url.target, older_than_seconds=3600)
    whole = content(at_url.target)
    assert (unnamed(at_url.target) != set()) == (point == Step.FILES_DURABLE)
    s3.age(at_url.target.split("/")[2], 4000)
    vacuum(at_url.target, older_than_seconds=3600)
    assert unnamed(at_url.target) == set()
    assert content(at_url.target) == whole


def kill_and_run_again(point: str, places: Places, whole: Path) -> None:
    """Kill the second apply, look, and apply again."""
    landing, target = places
    apply_with(LocalEngine(), landing, target, OPTIONS, to=Point(n=2))
    before = content(target)
    ended = subprocess.run(
        [sys.executable, "-m", "gaussdecode", "spark", "apply", landing, target, "--local"],
        env={**os.environ, VARIABLE: point}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == -signal.SIGKILL, ended.stderr
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


def test_two_writers_one_fails(source: tuple[History, Path], tmp_path: Path) -> None:
    """While one applies, another is refused and changes nothing."""
    _, root = source
    target = tmp_path / "target"
    apply_with(LocalEngine(), root / "landing", target, OPTIONS, to=Point(n=2))
    before = content(target)
    with Target(target).locked(), pytest.raises(LandingError, match="another process"):
        apply_with(LocalEngine(), root / "landing", target, OPTIONS)
    assert content(target) == before


def test_overtaken_writer_fails(at_url: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a store, where no lock holds, the slower writer finds its number taken and leaves no file."""
    landing, target = at_url
    apply_with(LocalEngine(), landing, target, OPTIONS, to=Point(n=2))
    real = LocalEngine.gathered

    def overtaken(self: LocalEngine, *args: object) -> list[str]:
        monkeypatch.setattr(LocalEngine, "gathered", real)
        apply_with(LocalEngine(), landing, target, OPTIONS)
        return real(self, *args)  # type: ignore[arg-type]  # as given

    monkeypatch.setattr(LocalEngine, "gathered", overtaken)
    with pytest.raises(LandingError, match="another writer"):
        apply_with(LocalEngine(), landing, target, OPTIONS)
    assert unnamed(target) == set()
    assert content(target)["n"] == [str(Landing(landing).last_n)]


def test_another_landing_is_refused(source: tuple[History, Path], tmp_path: Path) -> None:
    """A target belongs to one landing."""
    _, root = source
    apply_with(LocalEngine(), root / "landing", tmp_path / "target", OPTIONS, to=Point(n=1))
    History(tmp_path / "other", 1).run(1)
    with pytest.raises(ConfigError, match="another landing"):
        apply_with(LocalEngine(), tmp_path / "other", tmp_path / "target")
