"""What a mirror has lost is found, and shipped again from a host that has it."""

from pathlib import Path

import pytest
from kit.mirrored import expire, fetch, land, reopen, settings, ship_all

from gaussdecode.errors import ConfigError, FencedError, LandingError
from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.mirror.lost import lost_end, newest_shipped, ship_missing
from gaussdecode.land.mirror.reading import MirrorFiles
from gaussdecode.land.mirror.shipper import Shipper
from gaussdecode.land.names import entry_path
from gaussdecode.land.verify import verify_files
from gaussdecode.objects.cloud import CloudStore


def shipped(tmp_path: Path, transactions: int = 8) -> tuple[CommitLog, CloudStore]:
    """A landing, open as by its daemon, and its mirror, which has all of it."""
    land(tmp_path / "root", transactions)
    log, store = reopen(tmp_path / "root"), CloudStore(settings(tmp_path))
    ship_all(log, store)
    return log, store


def content(store: CloudStore) -> dict[str, bytes | None]:
    """Every object."""
    return {path: store.get(path) for path in store.below("")}


def ship(log: CommitLog, store: CloudStore) -> list[str]:
    """Ship again what is lost; gives the paths."""
    told: list[str] = []
    ship_missing(log.disk, store, told.append)
    return told


@pytest.mark.parametrize("count", [1, 2])
def test_entries_that_are_gone_at_the_end_are_found(tmp_path: Path, count: int) -> None:
    """By what the landing knows, and without the landing by the copies of what the daemon knows."""
    log, store = shipped(tmp_path)
    (tmp_path / "root/snapshots").mkdir(exist_ok=True)
    (tmp_path / "root/snapshots/ledger.json").write_bytes(b"{}")
    ship_all(log, store)
    last = log.next_n - 1
    assert newest_shipped(log.disk, store) == newest_shipped(None, store) == last
    assert lost_end(last, store) is None
    for n in range(last - count + 1, last + 1):
        store.remove(entry_path(n))
    for disk in (log.disk, None):
        assert f"ends with entry {last - count}" in (
            lost_end(newest_shipped(disk, store), store) or ""
        )
    for path in store.below("snapshots"):
        store.remove(path)
    assert lost_end(newest_shipped(log.disk, store), store) is not None
    assert newest_shipped(None, store) == -1, "nothing tells"
    log.close()


def test_every_object_can_be_shipped_again(tmp_path: Path) -> None:
    """Each alone, each kind, and all at once but one entry: the mirror is as it was, byte for byte."""
    log, store = shipped(tmp_path)
    before = content(store)
    kinds = ("commits/0", "commits/checkpoints", "data", "schemas")
    assert all(any(path.startswith(kind) for path in before) for kind in kinds)
    for path in before:
        if path == "layout.json":
            continue
        store.remove(path)
        ship(log, store)
        again = content(store)
        gone = before.keys() - again.keys()
        assert gone <= {path}
        assert again.items() <= before.items()
        if gone:  # of these entries there is another copy there
            assert path.startswith("commits/")
            assert verify_files(MirrorFiles(store)).is_clean
            store.put_new(path, before[path] or b"")
    newest = max(path for path in before if path.startswith("commits/0"))
    for path in before.keys() - {"layout.json", newest}:
        store.remove(path)
    told = ship(log, store)
    assert verify_files(MirrorFiles(store)).is_clean, verify_files(MirrorFiles(store)).findings
    assert len(set(told)) == len(told)
    assert {of for of in content(store) if of.startswith("data/")} == {
        of for of in before if of.startswith("data/")
    }
    assert ship(log, store) == []
    log.close()


def test_what_is_here_no_more_is_left_to_be_named(tmp_path: Path) -> None:
    """Of files that were removed or altered here nothing is put; the others are."""
    log, store = shipped(tmp_path)
    paths = [path for path in store.below("data") if "public.a" in path]
    for path in paths:
        store.remove(path)
    (tmp_path / "root" / paths[0]).unlink()
    (tmp_path / "root" / paths[1]).write_bytes(b"x" * (tmp_path / "root" / paths[1]).stat().st_size)
    assert ship(log, store) == paths[2:]
    findings = verify_files(MirrorFiles(store)).findings
    assert all(any(path in finding for finding in findings) for path in paths[:2])
    log.close()


def test_beside_a_daemon_that_goes_on(tmp_path: Path) -> None:
    """One that finds the entry before its own gone ends and takes its own back; then it goes on."""
    log, store = shipped(tmp_path)
    daemon = Shipper(log, store)
    daemon.prepare()
    log.close()
    land(tmp_path / "root", 10, "second")
    log = reopen(tmp_path / "root", "third")
    daemon._log = log
    store.remove(entry_path(daemon.shipped))
    before = content(store)
    with pytest.raises(
        LandingError, match=r"entry .* was shipped and is missing: .*--ship-missing"
    ) as caught:
        daemon.ship()
    assert not isinstance(caught.value, FencedError)
    assert content(store) == before
    assert ship(log, store) == [entry_path(daemon.shipped)]
    while daemon.ship() is not None:
        pass
    assert verify_files(MirrorFiles(store)).is_clean
    assert daemon.is_done
    log.close()


def test_entries_whose_rows_are_there_only(tmp_path: Path) -> None:
    """A start refuses such a mirror; the entries are shipped again, and it goes on."""
    log, store = shipped(tmp_path)
    ship_all(log, store, keep=0.0)
    store.remove(entry_path(log.next_n - 1))
    with pytest.raises(LandingError, match=r"were only there. .*--ship-missing"):
        Shipper(log, store).prepare()
    assert ship(log, store) == [entry_path(log.next_n - 1)]
    ship_all(log, store)
    assert verify_files(MirrorFiles(store)).is_clean
    log.close()


@pytest.mark.parametrize("has_more", [False, True])
def test_a_host_that_was_taken_over_from_ships_what_is_the_mirrors(
    tmp_path: Path, has_more: bool
) -> None:
    """It alone has the rows of before; nothing is put of what it landed afterwards."""
    log, store = shipped(tmp_path, 4)
    shared = log.next_n - 1
    log.close()
    fetch(tmp_path / "new", store)
    taken = reopen(tmp_path / "new", "other")
    ship_all(taken, store)
    taken.close()
    if has_more:
        land(tmp_path / "root", 9, "alone")
    log = reopen(tmp_path / "root", "alone")
    before = content(store)
    lost = [path for path in before if path.startswith("data/")]
    lost.append(entry_path(shared))
    for path in lost:
        store.remove(path)
    assert sorted(ship(log, store)) == sorted(lost)
    assert content(store) == before
    store.remove(entry_path(shared + 1))  # the newest one, and of the other host
    assert ship(log, store) == []
    log.close()


def test_what_another_host_claimed_after_a_loss_stays_its_own(tmp_path: Path) -> None:
    """The store lost an entry that this host had shipped, and another went on without it."""
    log, store = shipped(tmp_path, 4)
    lost = log.next_n - 1
    store.remove(entry_path(lost))
    fetch(tmp_path / "new", store)
    taken = reopen(tmp_path / "new", "other")
    ship_all(taken, store)
    taken.close()
    before = content(store)
    assert entry_path(lost) in before
    assert ship(log, store) == []
    assert content(store) == before
    land(tmp_path / "new", 6, "more")
    taken = reopen(tmp_path / "new", "other")
    ship_all(taken, store)
    taken.close()
    store.remove(entry_path(lost))  # the one of the other host is gone as well
    for path in store.below("commits/checkpoints"):
        if int(path[-26:-6]) >= lost:
            store.remove(path)
    assert entry_path(lost) not in ship(log, store)
    assert store.size(entry_path(lost)) is None
    log.close()


@pytest.mark.parametrize("kind", ["data", "commits/checkpoints"])
def test_what_retention_takes_meanwhile_does_not_come_back(tmp_path: Path, kind: str) -> None:
    """Its daemon takes it there after this has looked and before it has put."""
    log, store = shipped(tmp_path, 9)

    class Meanwhile(CloudStore):
        def put_new(self, path: str, content: bytes | Path) -> bool:
            raw = content if isinstance(content, bytes) else content.read_bytes()
            if log.floor < 0:
                expire(log, store)
                ship_all(log, store)
            return super().put_new(path, raw)

    lost = min(path for path in store.below("") if path.startswith(kind))
    n = int(lost.rpartition("/")[2][:20])
    store.remove(lost)
    told: list[str] = []
    ship_missing(log.disk, Meanwhile(settings(tmp_path)), told.append)
    assert log.floor >= n
    assert lost not in store.below("")
    assert lost not in told
    assert verify_files(MirrorFiles(store)).is_clean, verify_files(MirrorFiles(store)).findings
    log.close()


def test_other_places_are_refused(tmp_path: Path) -> None:
    """Another landing, an empty mirror, one without any entry of this landing."""
    log, store = shipped(tmp_path, 2)
    empty = CloudStore(settings(tmp_path / "empty"))
    with pytest.raises(ConfigError, match=r"one has no layout\.json"):
        ship(log, empty)
    land(tmp_path / "other", 2)
    other = reopen(tmp_path / "other")
    for act in (lambda: ship(other, store), lambda: newest_shipped(other.disk, store)):
        with pytest.raises(ConfigError, match="holds another landing"):
            act()
    other.close()
    for path in store.below("commits"):
        store.remove(path)
    with pytest.raises(ConfigError, match="it has no entry"):
        ship(log, store)
    log.close()
