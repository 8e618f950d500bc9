"""A target that is followed for long stays small, and right."""

import dataclasses
from pathlib import Path

import pytest
from kit.history import History, shop

from gaussdecode.spark.apply import Options, apply_with
from gaussdecode.spark.maintain.follow import APPLIES, VACUUM_SECONDS, Maintenance
from gaussdecode.spark.merge.engine import LocalEngine
from gaussdecode.spark.merge.sizing import Sizes
from gaussdecode.spark.target.deletion_vectors import current_rows
from gaussdecode.spark.target.delta_log import CHECKPOINT_EACH
from gaussdecode.spark.target.store import Target


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here survives the machine: do not wait for its disk."""
    monkeypatch.setattr("os.fsync", lambda _: None)


@dataclasses.dataclass
class Clock:
    """Rising seconds."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.slow
def test_a_followed_target_stays_small(tmp_path: Path) -> None:
    """After many applies: few files of each kind, no version nobody reads, every row right."""
    source = History(tmp_path / "landing", 3, with_schema_changes=False, tables=shop()[:1], keys=40)
    clock, said = Clock(), list[str]()
    maintenance = Maintenance(
        LocalEngine(), tmp_path / "target", keep_seconds=0, say=said.append, clock=clock
    )
    beside = Sizes(small_bucket=0, share=0.6)
    made = Options(history=True, vectors=True, changelog="gd_commit_date", buckets=2, sizes=beside)
    applies = 3 * APPLIES + 1
    for _ in range(applies):
        source.transaction()
        source.commit()
        clock.now += 2 * VACUUM_SECONDS / APPLIES
        summary = apply_with(LocalEngine(), tmp_path / "landing", tmp_path / "target", made)
        maintenance.keep(is_changed=summary.tables > 0)
    target = Target(tmp_path / "target")
    version = target.newest("public.plain")
    assert version is not None
    apply_with(LocalEngine(), tmp_path / "landing", tmp_path / "once", made)
    assert content(target) == content(Target(tmp_path / "once"))
    assert max(len(version.changelog), len(version.closed)) < 2 * APPLIES
    assert len(version.current) <= 8
    assert len(target.log("public.plain").versions()) < APPLIES + CHECKPOINT_EACH
    assert len(target.database_versions()) < APPLIES
    assert any("became" in text for text in said)
    assert any("old version" in text for text in said)


def content(target: Target) -> dict[str, list[str]]:
    """All rows of the newest version, by kind."""
    version = target.newest("public.plain")
    assert version is not None
    root = target.table_root("public.plain")
    return {
        kind: sorted(
            repr({**row, "gd_unchanged": row["gd_unchanged"] or None})
            for file in getattr(version, kind)
            for row in current_rows(root, file).to_pylist()
        )
        for kind in ("current", "closed", "changelog")
    }


def test_another_writer_puts_it_off(tmp_path: Path) -> None:
    """While the target is written by another process, following goes on and says why."""
    source = History(tmp_path / "landing", 3)
    source.run(1)
    apply_with(LocalEngine(), tmp_path / "landing", tmp_path / "target")
    clock, said = Clock(), list[str]()
    maintenance = Maintenance(
        LocalEngine(), tmp_path / "target", keep_seconds=0, say=said.append, clock=clock
    )
    clock.now = VACUUM_SECONDS
    with Target(tmp_path / "target").locked():
        maintenance.keep(is_changed=True)
    (text,) = said
    assert "put off" in text
    assert "another process" in text
