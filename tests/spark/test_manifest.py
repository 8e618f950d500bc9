"""Versions as differences: read back as they were committed, and small."""

import dataclasses
import json
from pathlib import Path
from random import Random

import pytest
from kit.history import History

from gaussdecode.spark.landing import Landing
from gaussdecode.spark.manifest import ancestor, chain, combined, difference, named_paths
from gaussdecode.spark.place import files_below
from gaussdecode.spark.store import StateFile, TableVersion, Target, commit, make_directory
from gaussdecode.spark.upkeep import vacuum


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here survives the machine: do not wait for its disk."""
    monkeypatch.setattr("os.fsync", lambda _: None)


@pytest.fixture
def store(tmp_path: Path) -> Target:
    """An empty target."""
    History(tmp_path / "landing", 1)
    return Target.create(tmp_path / "target", Landing(tmp_path / "landing"))


def next_version(before: TableVersion, rng: Random) -> TableVersion:
    """Some files go, some come, and some get another vector."""
    v = before.v + 1

    def changed(files: tuple[StateFile, ...], kind: str, bucket: int) -> list[StateFile]:
        kept = [
            dataclasses.replace(file, deletes=f"files/d{v}", deleted=v)
            if rng.random() < 0.1
            else file
            for file in files
            if rng.random() < 0.95
        ]
        new = range(rng.randint(0, 2))
        return [
            *kept,
            *(StateFile(f"files/{v}-{kind}{bucket}-{i}", 9, 99, "s", bucket) for i in new),
        ]

    current = changed(before.current, "current", rng.randint(-1, 3))
    return dataclasses.replace(
        before, v=v, n=before.n + 1, accepted_gaps=(v,), created="2026-01-31T00:00:00+00:00",
        current=tuple(sorted(current, key=lambda file: file.bucket)),
        closed=tuple(changed(before.closed, "closed", -1)),
        changelog=(*before.changelog, StateFile(f"changelog/{v}", 1, 1, "s", partition="d=1")),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_every_version_reads_back(seed: int, store: Target) -> None:
    """Each version is what was committed, from as many manifests as its number has ones."""
    rng, made = Random(seed), TableVersion(0, -1, "s", 4)
    versions = []
    make_directory(store.table_root("t") / "files")
    make_directory(store.table_root("t") / "changelog")
    for _ in range(70):
        made = next_version(made, rng)
        versions.append(made)
        store.commit_table("t", made)
    for version in versions:
        assert store.version("t", version.v) == version
        needed = list(chain(version.v, store.manifests("t").__getitem__))
        assert len(needed) <= version.v.bit_count()
    records = store.manifests("t")
    for _ in range(20):
        alive = rng.sample(range(1, made.v + 1), rng.randint(1, 30))
        expected = set().union(*(versions[v - 1].paths for v in alive))
        assert named_paths(records, alive) == expected
    vacuum(store.root, older_than_seconds=0)
    assert store.newest("t") == made
    assert set(store.versions("t")) == {v for v, _ in chain(made.v, records.__getitem__)}
    again = next_version(made, rng)
    store.commit_table("t", again)
    assert store.newest("t") == again


def test_manifests_grow_with_what_changed(store: Target) -> None:
    """A table of many files and versions: the bytes are some times those of the changes."""
    made = TableVersion(0, -1, "s", 1)
    make_directory(store.table_root("t") / "changelog")
    for v in range(1, 201):
        file = StateFile(f"changelog/{v:060d}", 1, 1, "s", partition="d=1")
        made = dataclasses.replace(made, v=v, changelog=(*made.changelog, file))
        store.commit_table("t", made)
    sizes = [file.bytes for file in files_below(store.table_root("t") / "versions")]
    whole = len(json.dumps(dataclasses.asdict(made)))
    assert sum(sizes) < 10 * whole  # each said everything: a hundred times


def test_older_manifests_are_carried_on(store: Target) -> None:
    """A target whose manifests each say everything, the older ones gone, goes on from the newest."""
    rng = Random(5)
    made = dataclasses.replace(next_version(TableVersion(36, 1, "s", 4), rng))
    old = dataclasses.asdict(made)
    for name in ("current", "closed", "changelog"):
        for file in old[name]:
            del file["deletes"], file["deleted"]
    directory = store.table_root("t") / "versions"
    for name in ("files", "changelog", "versions"):
        make_directory(store.table_root("t") / name)
    commit(directory / f"{made.v:020d}.json", old)
    assert store.newest("t") == made
    for _ in range(5):
        made = next_version(made, rng)
        store.commit_table("t", made)
        assert store.newest("t") == made
    assert [ancestor(v, lambda n: n >= 37) for v in (38, 39, 40, 41)] == [0, 38, 0, 40]


def test_a_difference_that_would_not_give_the_version_is_not_written() -> None:
    """Files in another order than a reader would put them: the version says everything."""
    files = [dataclasses.asdict(StateFile(name, 1, 1, "s")) for name in "abcd"]
    before = {"v": 1, "current": [], "changelog": [], "closed": files}
    after = {**before, "v": 2, "closed": files[::-1]}
    assert difference(before, after) is None
    shorter = {**before, "v": 2, "closed": files[1:]}
    changes = difference(before, shorter)
    assert changes is not None
    assert combined([before, changes]) == shorter
