"""Numbers of entries belong to one landing: whoever remembers one is told when another is there."""

import json
import shutil
from pathlib import Path

import pytest
from kit.history import History, Table
from kit.mirrored import fetch, land, reopen, settings, ship_all

from gaussdecode.errors import ConfigError, LandingError
from gaussdecode.objects.cloud import CloudStore
from gaussdecode.spark import query
from gaussdecode.spark.apply import Options, Summary, apply_with
from gaussdecode.spark.log.landing import Landing, Point, Reach
from gaussdecode.spark.log.offset import Offset
from gaussdecode.spark.maintain.status import metrics_text, status
from gaussdecode.spark.merge.column_identity import question_of
from gaussdecode.spark.merge.engine import LocalEngine
from gaussdecode.spark.target.store import Target

ANEW = "a new target"


def begun(root: Path, seed: int, entries: int = 3) -> History:
    """A landing with an id of its own, and some entries."""
    shutil.rmtree(root, ignore_errors=True)
    history = History(root, seed, with_schema_changes=False)
    layout = json.loads((root / "layout.json").read_text())
    (root / "layout.json").write_text(json.dumps({**layout, "landing_id": f"{seed:032x}"}))
    history.run(entries)
    return history


def copied(history: History, root: Path) -> History:
    """A copy that goes on by itself, as the daemon of another host would."""
    shutil.copytree(history.writer.root, root)
    history.writer.root = root
    return history


def run(root: Path, landing: str = "landing", to: Point | None = None) -> Summary:
    """Apply a landing."""
    return apply_with(LocalEngine(), root / landing, root / "target", Options(), to=to)


def test_an_offset_fits_its_landing_alone(tmp_path: Path) -> None:
    """It goes on with it, also when it has more; it is refused by another, a shorter and a forked one."""
    history = begun(tmp_path / "landing", 1)
    landing = Landing(tmp_path / "landing")
    last = landing.last_n
    offset = Offset.of(landing, last)
    nothing = Offset.of(landing, -1)
    assert Offset.from_record(json.loads(json.dumps(offset.to_record()))) == offset
    shutil.copytree(tmp_path / "landing", tmp_path / "shorter")
    history.run(2)
    for of in (offset, nothing):
        of.check(landing, ANEW)
    longer = Offset.of(landing, last + 1)
    with pytest.raises(
        LandingError, match=rf"ends with entry {last}, .*read up to entry {last + 1}"
    ):
        longer.check(Landing(tmp_path / "shorter"), ANEW)
    copied(history, tmp_path / "fork")
    history.writer.n, history.writer.previous = last + 1, offset.hash
    history.lsn += 1
    history.run(3)
    offset.check(Landing(tmp_path / "fork"), ANEW)
    with pytest.raises(LandingError, match=rf"entry {last + 1} differs .* with a new target"):
        longer.check(Landing(tmp_path / "fork"), ANEW)
    other = begun(tmp_path / "landing", 2, 9)
    assert other.writer.n > last
    for of in (offset, nothing):
        with pytest.raises(LandingError, match=r"holds another landing now .* with a new target"):
            of.check(landing_at(tmp_path), ANEW)


def landing_at(root: Path) -> Landing:
    """As it is now."""
    return Landing(root / "landing")


def test_an_offset_of_before_is_a_number(tmp_path: Path) -> None:
    """It goes on with whatever is there, as long as that has so many entries."""
    begun(tmp_path / "landing", 1)
    offset = Offset.from_record({"n": 2})
    offset.check(landing_at(tmp_path), ANEW)
    begun(tmp_path / "landing", 2, 1)
    with pytest.raises(LandingError, match="ends with entry"):
        Offset(99).check(landing_at(tmp_path), ANEW)


def test_entries_that_retention_took_prove_nothing(tmp_path: Path) -> None:
    """The one before the first is still known, by the first."""
    begun(tmp_path / "landing", 1, 4)
    offsets = [Offset.of(landing_at(tmp_path), n) for n in range(4)]
    for n in range(3):
        (tmp_path / "landing" / "commits" / f"{n:020d}.json").unlink()
    assert [Offset.of(landing_at(tmp_path), n).hash for n in range(4)] == [
        "", "", offsets[2].hash, offsets[3].hash
    ]  # fmt: skip
    for offset in offsets:
        offset.check(landing_at(tmp_path), ANEW)


def test_a_target_refuses_a_copy_that_went_on_by_itself(tmp_path: Path) -> None:
    """It has the id of the one that was applied, and other entries; nothing of it is applied."""
    history = begun(tmp_path / "landing", 1)
    shutil.copytree(tmp_path / "landing", tmp_path / "copy")
    run(tmp_path)
    assert run(tmp_path, "copy").n == history.writer.n - 1, "as long as it is the same"
    forked, previous = history.writer.n, history.writer.previous
    history.run(2)
    run(tmp_path)
    with pytest.raises(LandingError, match="ends with entry"):
        run(tmp_path, "copy")
    history.writer.root, history.writer.n = tmp_path / "copy", forked
    history.writer.previous, history.lsn = previous, history.lsn + 1
    history.run(6)
    before = Target(tmp_path / "target").database()
    with pytest.raises(LandingError, match="differs from the entry that was read"):
        run(tmp_path, "copy")
    assert Target(tmp_path / "target").database() == before
    with pytest.raises(LandingError, match="differs from the entry"):
        status(tmp_path / "copy", tmp_path / "target")


def test_a_landing_that_was_begun_from_its_mirror_is_the_same(tmp_path: Path) -> None:
    """Offsets of the lost host are gone on from in the mirror; those of entries it had not shipped are not."""
    old, store = tmp_path / "old", CloudStore(settings(tmp_path))
    land(old, 3)
    log = reopen(old)
    ship_all(log, store)
    log.close()
    shipped = Offset.of(Landing(old), Landing(old).last_n)
    land(old, 6, "unshipped")
    unshipped = Offset.of(Landing(old), shipped.n + 1)
    mirror = Landing(store.url)
    shipped.check(mirror, ANEW)
    with pytest.raises(LandingError, match="or is a mirror that is behind"):
        unshipped.check(mirror, ANEW)
    fetch(tmp_path / "new", store)
    log = reopen(tmp_path / "new", "other")
    ship_all(log, store)
    log.close()
    for offset in (shipped, Offset(shipped.n), Offset(shipped.n, shipped.landing_id)):
        offset.check(Landing(store.url), ANEW)
    assert Landing(store.url).landing_id == shipped.landing_id
    with pytest.raises(LandingError, match="differs from the entry that was read"):
        unshipped.check(Landing(store.url), ANEW)


def test_what_goes_by_a_target_and_a_landing_sees_that_they_belong_together(tmp_path: Path) -> None:
    """Status, metrics, questions about columns, and a point of the past that is found in the log."""
    history = begun(tmp_path / "landing", 1)
    run(tmp_path)
    target, other = tmp_path / "target", tmp_path / "other"
    begun(other, 2, 9)
    table: Table = history.tables[0]
    for ask in (
        lambda: status(other, target),
        lambda: metrics_text(other, target),
        lambda: question_of(Landing(other), Target(target), table.directory, None),
        lambda: query._reach(Target(target), Point(lsn=history.lsn), other),
        lambda: query._reach(Target(target), Point(n=1), other),
    ):
        with pytest.raises(ConfigError, match="was made from another landing"):
            ask()
    assert query._reach(Target(target), Point(n=1), tmp_path / "landing") == Reach(1)


def test_a_point_may_say_which_landing_it_is_of(tmp_path: Path) -> None:
    """It is refused by another one; a target knows which it is made from."""
    begun(tmp_path / "landing", 1)
    known = landing_at(tmp_path).landing_id
    point = Point(n=1, landing_id=known)
    assert run(tmp_path, to=point).n == 1
    target = Target(tmp_path / "target")
    assert query._reach(target, point, tmp_path / "landing") == Reach(1)
    begun(tmp_path / "landing", 2)
    with pytest.raises(ConfigError, match=f"holds landing .*, entry 1 is of landing {known}"):
        landing_at(tmp_path).resolve(point)
    foreign = Point(n=1, landing_id="f" * 32)
    with pytest.raises(ConfigError, match="entry 1 is of landing f"):
        query._reach(target, foreign, tmp_path / "landing")
