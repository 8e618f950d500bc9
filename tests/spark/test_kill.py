"""Apply killed at every step of an entry, then run again: the same result."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit.history import History
from kit.killing import OPTIONS, Places, content, kill_and_run_again, unnamed
from kit.s3 import S3

from gaussdecode.errors import ConfigError, LandingError, MirrorError
from gaussdecode.spark.apply import apply_with
from gaussdecode.spark.log.landing import Landing, Point
from gaussdecode.spark.log.place import ObjectPath, put_new
from gaussdecode.spark.maintain.upkeep import vacuum
from gaussdecode.spark.merge.engine import LocalEngine
from gaussdecode.spark.target import durable
from gaussdecode.spark.target.failpoint import Step
from gaussdecode.spark.target.state_file import CURRENT
from gaussdecode.spark.target.store import Target
from gaussdecode.spark.target.table_log import TableLog

pytestmark = pytest.mark.crash

# Of vacuum and of Iceberg; killed there by tests of their own.
ELSEWHERE = (Step.FILES_REMOVED, Step.CATALOG_WRITTEN, Step.CATALOG_COMMITTED)
SEVERAL = (Step.FILES_DURABLE, Step.MANIFEST_WRITTEN, Step.MANIFEST_LINKED, Step.MANIFEST_DURABLE)
POINTS = [
    *(str(step) for step in Step if step not in ELSEWHERE),
    *(f"{step}:{count}" for step in SEVERAL for count in (2, 4)),
    f"{Step.MANIFEST_LINKED}:5",
]
AT_URL = (Step.FILES_DURABLE, f"{Step.MANIFEST_WRITTEN}:2", f"{Step.MANIFEST_LINKED}:2")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> tuple[History, Path]:
    """A landing to apply in two steps, and what comes out undisturbed."""
    root = tmp_path_factory.mktemp("source")
    history = History(root / "landing", 31)
    history.run(7)
    for point in (Point(n=2), Point()):
        apply_with(LocalEngine(), root / "landing", root / "whole", OPTIONS, to=point)
    return history, root


@pytest.fixture
def at_url(source: tuple[History, Path], s3: S3) -> Places:
    """The landing of `source` in a bucket, and room for a target."""
    bucket = s3.bucket()
    return Places(s3.keep(source[1] / "landing", bucket, "landing"), s3.url(bucket, "a b/tables"))


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
    with pytest.raises(ConfigError, match="younger than an hour stay"):
        vacuum(at_url.target, older_than_seconds=0)
    vacuum(at_url.target, older_than_seconds=3600)
    whole = content(at_url.target)
    assert (unnamed(at_url.target) != set()) == (point == Step.FILES_DURABLE)
    s3.age(at_url.target.split("/")[2], 4000)
    vacuum(at_url.target, older_than_seconds=3600)
    assert unnamed(at_url.target) == set()
    assert content(at_url.target) == whole


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


def test_two_writers_that_both_get_far_lose_no_file(
    at_url: Places, source: tuple[History, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slower one takes files of the other out of a history, before it finds its number taken."""
    landing, target = at_url
    apply_with(LocalEngine(), landing, target, OPTIONS, to=Point(n=2))
    real = TableLog._commit
    waiting: list[Callable[[], int]] = []
    made: list[int] = []

    def commit(self: TableLog, folder: str, *args: Any, **words: Any) -> int:  # Any: as given
        if folder == CURRENT and self._root.name == "public.bag" and not waiting:
            waiting.append(lambda: real(self, folder, *args, **words))
            with pytest.raises(LandingError, match="another writer"):
                apply_with(LocalEngine(), landing, target, OPTIONS)
            return made[0]
        if folder == CURRENT and self._root.name == "public.bag" and not made:
            made.append(waiting[0]())
        return real(self, folder, *args, **words)

    monkeypatch.setattr(TableLog, "_commit", commit)
    apply_with(LocalEngine(), landing, target, OPTIONS)
    assert made
    assert content(target) == content(source[1] / "whole")


def test_commit_without_an_answer_keeps_its_files(
    at_url: Places, source: tuple[History, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that did not answer may make the commit later: the files it names are still there."""
    landing, target = at_url
    apply_with(LocalEngine(), landing, target, OPTIONS, to=Point(n=2))
    late: list[tuple[ObjectPath, bytes]] = []

    def lost(place: ObjectPath, content: bytes) -> bool:
        if "public.full_key/current/_delta_log" in str(place):
            late.append((place, content))
            raise MirrorError("no answer")
        return put_new(place, content)

    with monkeypatch.context() as patch:
        patch.setattr(durable, "put_new", lost)
        with pytest.raises(MirrorError, match="no answer"):
            apply_with(LocalEngine(), landing, target, OPTIONS)
    for place, body in late:
        assert put_new(place, body)
    apply_with(LocalEngine(), landing, target, OPTIONS)
    assert content(target) == content(source[1] / "whole")


def test_another_landing_is_refused(source: tuple[History, Path], tmp_path: Path) -> None:
    """A target belongs to one landing."""
    _, root = source
    apply_with(LocalEngine(), root / "landing", tmp_path / "target", OPTIONS, to=Point(n=1))
    History(tmp_path / "other", 1).run(1)
    with pytest.raises(ConfigError, match="another landing"):
        apply_with(LocalEngine(), tmp_path / "other", tmp_path / "target")
