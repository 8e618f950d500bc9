"""What is in the mirror after anything that can happen to those who ship."""

import itertools
import json
import shutil
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest
from kit.mirrored import Cut, CutStore, expire, fetch, land, reopen, settings, ship_all

from gaussdecode.errors import ConfigError, FencedError, LandingError, StoppedError
from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.mirror.known import read_state
from gaussdecode.land.mirror.plan import NUMBERED, last_floor, newest_entry, numbered_path
from gaussdecode.land.mirror.reading import MirrorFiles
from gaussdecode.land.mirror.shipper import Shipper
from gaussdecode.land.names import LAYOUT, entry_path
from gaussdecode.land.verify import verify, verify_files
from gaussdecode.model.entry import CommitEntry, parse_checkpoint
from gaussdecode.objects.cloud import CloudStore
from gaussdecode.settings.landing_sections import MirrorConfig


def landed(directory: Path, transactions: int) -> set[int]:
    """Positions of rows of a landing without a mirror."""
    land(directory, transactions)
    return {
        row["gd_lsn"]
        for path in directory.glob("data/*/*/*.parquet")
        for row in pq.ParquetFile(path).read(["gd_lsn"]).to_pylist()
    }


def entries_of(mirror: Path) -> dict[int, CommitEntry]:
    """Every entry that a reader of a mirror finds."""
    found = {}
    for path in sorted(mirror.glob("commits/checkpoints/*.jsonl")):
        for line in parse_checkpoint(path.read_bytes())[1]:
            entry = CommitEntry.from_bytes(line)
            found[entry.n] = entry
    for path in sorted(mirror.glob("commits/*.json")):
        entry = CommitEntry.from_bytes(path.read_bytes())
        assert found.get(entry.n, entry) == entry
        found[entry.n] = entry
    return found


def check(mirror: Path, *, is_whole: bool) -> list[tuple[int, int]]:
    """What holds for every reader at every moment; gives the rows, by position.

    Args:
        mirror: its directory.
        is_whole: nobody has died in the middle, so a reader of directories sees what the log names.
    """
    entries = entries_of(mirror)
    numbers = sorted(entries)
    assert numbers == list(range(numbers[0], numbers[-1] + 1)) if numbers else True
    named = set()
    for before, n in itertools.pairwise(numbers):
        assert entries[n].previous == entries[before].hash
    floor = last_floor(entries.values())
    for entry in (entries[n] for n in numbers if n > floor):
        for file in entry.files:
            if file.path.startswith("compact/") and int(file.path.split("/")[1]) <= floor:
                continue
            assert (mirror / file.path).stat().st_size == file.bytes, file.path
            assert (mirror / f"schemas/{file.table}/{file.schema_id}.json").exists()
            named.add(file.path)
    lying = {str(path.relative_to(mirror)) for path in mirror.glob("data/*/*/*.parquet")}
    if is_whole:
        assert lying == {path for path in named if path.startswith("data/")}
    rows = [
        (row["gd_lsn"], row["gd_seq"])
        for path in sorted(lying if is_whole else named)
        for row in pq.ParquetFile(mirror / path).read(["gd_lsn", "gd_seq"]).to_pylist()
        if path.startswith("data/")
    ]
    assert len(set(rows)) == len(rows), "a reader of directories sees a row twice"
    return rows


def test_the_mirror_is_the_landing(tmp_path: Path) -> None:
    """Every file of a landing that is not its own business, byte by byte."""
    root, config = tmp_path / "root", settings(tmp_path)
    land(root, 5)
    log = reopen(root)
    ship_all(log, CloudStore(config))
    log.close()
    mirror = tmp_path / "mirror"
    check(mirror, is_whole=True)
    for path in sorted(mirror.rglob("*")):
        if path.is_file():
            assert path.read_bytes() == (root / path.relative_to(mirror)).read_bytes()
    held = {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()}
    sent = {str(p.relative_to(mirror)) for p in mirror.rglob("*") if p.is_file()}
    assert held - sent <= {".lock", "mirror.json"}


@pytest.mark.parametrize("after", [False, True])
def test_death_at_every_request(tmp_path: Path, after: bool) -> None:
    """Whoever dies at any request leaves a mirror that is right, and the next goes on."""
    root = tmp_path / "root"
    land(root, 4)
    log = reopen(root)
    counting = CutStore(settings(tmp_path / "whole"))
    ship_all(log, counting)
    whole = check(tmp_path / "whole" / "mirror", is_whole=True)
    for at in range(counting.requests):
        place = tmp_path / f"cut-{at}"
        with pytest.raises(Cut):
            ship_all(log, CutStore(settings(place), at, after=after))
        if (place / "mirror").exists():
            check(place / "mirror", is_whole=False)
        ship_all(log, CloudStore(settings(place)))
        assert check(place / "mirror", is_whole=True) == whole
        (root / "mirror.json").unlink()
    log.close()


def test_a_new_host_goes_on(tmp_path: Path) -> None:
    """It has the same log and position, says that it goes on, and the old one is fenced."""
    old, new, config = tmp_path / "old", tmp_path / "new", settings(tmp_path)
    land(old, 5, with_retention=True)
    log = reopen(old)
    ship_all(log, CloudStore(config))
    position, next_n, schemas = log.position, log.next_n, log.schemas
    log.close()
    fetched: list[int] = []

    def stop(_: str, done: int, total: int) -> None:
        assert done < total
        fetched.append(done)
        if len(fetched) == 4:
            raise StoppedError("a stop")

    with pytest.raises(StoppedError):
        fetch(new, CloudStore(config), stop)
    assert not (new / LAYOUT).exists(), "it begins again"
    assert fetch(new, CloudStore(config)) == next_n - 1
    taken = reopen(new, "third")
    assert (taken.position, taken.schemas) == (position, schemas)
    assert taken.findings == []
    shipper = ship_all(taken, CloudStore(config))
    assert shipper.is_claimed
    assert taken.next_n == next_n + 1
    taken.close()
    land(new, 8, "fourth")
    taken = reopen(new, "fifth")
    ship_all(taken, CloudStore(config))
    taken.close()
    check(tmp_path / "mirror", is_whole=True)
    assert verify(new).is_clean, verify(new).findings

    land(old, 7, "sixth")  # it has not noticed
    zombie = reopen(old, "seventh")
    with pytest.raises(FencedError, match="another host continues this landing"):
        ship_all(zombie, CloudStore(config))
    zombie.close()
    check(tmp_path / "mirror", is_whole=True)


def test_a_host_that_slept_while_its_number_was_taken_and_given_up(tmp_path: Path) -> None:
    """Its entry is absent there, and so is the one before: it takes back what it has put, and stops."""
    old, new, config = tmp_path / "old", tmp_path / "new", settings(tmp_path)
    land(old, 2)
    log, store = reopen(old), CloudStore(config)
    asleep = ship_all(log, store)
    fetch(new, store)
    taken = reopen(new, "third")
    ship_all(taken, store)
    taken.close()
    count = 2
    while taken.floor <= log.next_n:  # until retention has taken both numbers
        count += 2
        land(new, count, "fourth")
        taken = reopen(new, "fifth")
        ship_all(taken, store)
        expire(taken, store)
        ship_all(taken, store)
        taken.close()
    before = sorted(store.below(""))
    log.close()
    land(old, 3, "sixth")
    asleep._log = reopen(old, "seventh")
    with pytest.raises(FencedError, match="which has disappeared"):
        asleep.ship()
    assert sorted(store.below("")) == before
    asleep._log.close()
    check(tmp_path / "mirror", is_whole=True)


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
def test_two_hosts_at_every_request(tmp_path: Path, after: bool) -> None:
    """An old host that stops for a while at any request neither doubles nor damages anything."""
    old = tmp_path / "old"
    land(old, 2)
    log = reopen(old)
    ship_all(log, CloudStore(settings(tmp_path / "base")))
    log.close()
    land(old, 3)
    log = reopen(old)
    counting = CutStore(settings(tmp_path / "base"))
    ship_all(log, counting)
    expected = landed(tmp_path / "expected", 4)
    for at in range(counting.requests):
        place = tmp_path / f"at-{at}"
        config = settings(place)
        first = reopen_short(old, tmp_path / f"short-{at}", 2)
        ship_all(first, CloudStore(config))
        first.close()
        (old / "mirror.json").unlink(missing_ok=True)
        sleeper = CutStore(config, at, after=after)
        with pytest.raises(Cut):
            ship_all(log, sleeper)
        new = tmp_path / f"new-{at}"
        fetch(new, CloudStore(config))
        taken = reopen(new, "third")
        ship_all(taken, CloudStore(config))
        taken.close()
        land(new, 4, "fourth")
        taken = reopen(new, "fifth")
        ship_all(taken, CloudStore(config))
        taken.close()
        rows = check(place / "mirror", is_whole=True)
        with pytest.raises(FencedError):  # it wakes
            ship_all(log, CloudStore(config))
        assert check(place / "mirror", is_whole=True) == rows
        assert {lsn for lsn, _ in rows} == expected
    log.close()


def reopen_short(old: Path, root: Path, transactions: int) -> CommitLog:
    """The landing as it was after its first transactions."""
    shutil.copytree(old, root)
    (root / "mirror.json").unlink(missing_ok=True)
    entries = sorted((root / "commits").glob("*.json"))
    keep = transactions + 1
    for path in entries[keep:]:
        for file in json.loads(path.read_bytes())["files"]:
            (root / file["path"]).unlink()
        path.unlink()
    for path in (root / "commits" / "checkpoints").glob("*.jsonl"):
        if int(path.stem.split("-")[1]) >= keep:
            path.unlink()
    return reopen(root, "short")


def test_rows_go_here_and_stay_there(tmp_path: Path) -> None:
    """Local files go after the store has them; the landing verifies, compares, and goes on."""
    root, config = tmp_path / "root", settings(tmp_path)
    land(root, 4)
    log = reopen(root)
    ship_all(log, CloudStore(config), keep=60.0)
    state = read_state(log.disk)
    assert state is not None
    assert state.removed == state.swept == log.next_n - 1 == log.mirrored_only_until
    log.close()
    assert not list(root.glob("data/public.*/*/*.parquet"))
    report = verify(root)
    assert report.is_clean, report.findings
    assert "mirrored" in json.loads((root / "layout.json").read_bytes())["capabilities"]
    assert "mirrored" not in (tmp_path / "mirror" / "layout.json").read_text()
    log = reopen(root)
    assert log.findings == []
    log.close()
    land(root, 6, "third")
    log = reopen(root, "fourth")
    ship_all(log, CloudStore(config))
    log.close()
    check(tmp_path / "mirror", is_whole=True)


def test_files_stay_until_they_are_old_enough(tmp_path: Path) -> None:
    """The time counts from when this process saw that the store has them."""
    root, config = tmp_path / "root", settings(tmp_path)
    land(root, 2)
    log = reopen(root)
    shipper = ship_all(log, CloudStore(config))
    before = sorted(root.glob("data/**/*.parquet"))
    assert shipper.remove_local(10.0, 100.0) == 0
    assert shipper.remove_local(10.0, 109.0) == 0
    assert sorted(root.glob("data/**/*.parquet")) == before
    assert shipper.remove_local(10.0, 110.0) == log.next_n
    log.close()


@pytest.mark.parametrize("point", ["removal_noted", "local_removed"])
def test_death_while_files_go(tmp_path: Path, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said to be gone goes at the next start."""
    root, config = tmp_path / "root", settings(tmp_path)
    land(root, 3)
    monkeypatch.setenv("GAUSSDECODE_FAILPOINTS", f"{point}=EIO")
    log = reopen(root)
    with pytest.raises(OSError, match="failpoint"):
        ship_all(log, CloudStore(config), keep=0.0)
    log.close()
    monkeypatch.delenv("GAUSSDECODE_FAILPOINTS")
    assert verify(root).is_clean
    log = reopen(root, "third")
    ship_all(log, CloudStore(config))
    state = read_state(log.disk)
    assert state is not None
    assert state.swept == state.removed
    log.close()
    assert not list(root.glob("data/public.*/*/*.parquet"))


def test_retention_takes_it_there_too(tmp_path: Path) -> None:
    """What a mirror keeps is what its landing keeps."""
    root, config = tmp_path / "root", settings(tmp_path)
    land(root, 3)
    log = reopen(root)
    ship_all(log, CloudStore(config))
    log.close()
    before = check(tmp_path / "mirror", is_whole=True)
    land(root, 8, "third")
    log = reopen(root, "fourth")
    ship_all(log, CloudStore(config))
    expire(log, CloudStore(config))
    assert log.floor >= 0
    ship_all(log, CloudStore(config))
    assert min(entries_of(tmp_path / "mirror")) == log.floor + 1
    log.close()
    rows = check(tmp_path / "mirror", is_whole=True)
    assert not set(before) <= set(rows)
    for path in (tmp_path / "mirror").rglob("*"):
        assert not path.is_file() or (root / path.relative_to(tmp_path / "mirror")).exists()


def test_a_mirror_of_an_old_landing(tmp_path: Path) -> None:
    """It begins where the landing does, and a new host can go on from it."""
    root, config = tmp_path / "root", settings(tmp_path)
    land(root, 8, with_retention=True)
    log = reopen(root)
    assert log.floor >= 0
    ship_all(log, CloudStore(config))
    state = log.position, log.next_n, log.floor
    log.close()
    fetch(tmp_path / "new", CloudStore(config))
    taken = reopen(tmp_path / "new", "third")
    assert (taken.position, taken.next_n, taken.floor) == state
    taken.close()


def test_a_mirror_of_an_old_landing_that_was_never_complete(tmp_path: Path) -> None:
    """Its host was lost before the first checkpoint was shipped: the error says so, nothing is begun."""
    root, store = tmp_path / "root", CloudStore(settings(tmp_path))
    land(root, 8, with_retention=True)
    log = reopen(root)
    shipper = Shipper(log, store)
    shipper.prepare()
    shipper.ship()
    log.close()
    with pytest.raises(LandingError, match=rf"begins with entry {shipper.shipped} and has no"):
        fetch(tmp_path / "new", store)
    assert {path.name for path in (tmp_path / "new").iterdir()} == {".lock"}


@pytest.mark.parametrize("file", NUMBERED)
def test_what_is_known_goes_by_entries_that_are_there(tmp_path: Path, file: str) -> None:
    """A new host never believes of a table what the log it has does not say."""
    root, config = tmp_path / "root", settings(tmp_path)
    land(root, 2)
    log = reopen(root)
    store = CloudStore(config)
    shipper = Shipper(log, store)
    shipper.prepare()
    (root / "snapshots").mkdir(exist_ok=True)
    (root / "snapshots" / file).write_bytes(b"{}")
    shipper.ship()
    shipper.ship_numbered()
    assert store.names("snapshots")[1] == []
    while shipper.ship() is not None:
        pass
    for serial, content in enumerate((b"{}", b'{"a":1}')):
        (root / "snapshots" / file).write_bytes(content)
        shipper.ship_numbered()
        path = numbered_path(file, log.next_n - 1, serial)
        assert store.below("snapshots") == [path]
        assert store.get(path) == content
    log.close()


@pytest.mark.parametrize("file", NUMBERED)
def test_what_is_ahead_of_the_log_is_not_taken(tmp_path: Path, file: str) -> None:
    """Another host may have shipped more between the list of entries and that of copies."""
    root, config = tmp_path / "root", settings(tmp_path)
    land(root, 2)
    log, store = reopen(root), CloudStore(config)
    (root / "snapshots").mkdir(exist_ok=True)
    (root / "snapshots" / file).write_bytes(b'{"as of":"the log"}')
    ship_all(log, store)
    last = log.next_n - 1
    log.close()
    store.put_new(numbered_path(file, last + 1, 1), b'{"as of":"a later entry"}')
    assert fetch(tmp_path / "new", store) == last
    assert (tmp_path / "new/snapshots" / file).read_bytes() == b'{"as of":"the log"}'
    report = verify_files(MirrorFiles(store))
    assert not any("is not ours" in of for of in report.findings), report.findings


def damage_landing(mirror: Path) -> None:
    """Somebody else's landing is there."""
    land(mirror.with_name("other"), 1)
    other = reopen(mirror.with_name("other"))
    ship_all(other, CloudStore(MirrorConfig(url=f"file://{mirror}")))
    other.close()


def damage_entry(mirror: Path) -> None:
    """An entry of the same number is another one."""
    path = max(mirror.glob("commits/*.json"))
    path.write_bytes(path.read_bytes().replace(b"public", b"qublic"))


def damage_ahead(mirror: Path) -> None:
    """There are entries that the landing has not."""
    path = max(mirror.glob("commits/*.json"))
    path.with_name(f"{int(path.stem) + 1:020d}.json").write_bytes(path.read_bytes())


@pytest.mark.parametrize(
    ("damage", "error", "match"),
    [
        (damage_landing, ConfigError, "holds another landing"),
        (damage_entry, FencedError, "is not the one of this landing"),
        (damage_ahead, FencedError, "this landing, that ends with"),
    ],
)
def test_what_is_not_ours_is_refused(
    tmp_path: Path, damage: object, error: type[Exception], match: str
) -> None:
    """Nothing of it is changed, and the error says what to do."""
    root, mirror = tmp_path / "root", tmp_path / "mirror"
    land(root, 2)
    log = reopen(root)
    if damage is not damage_landing:
        ship_all(log, CloudStore(settings(tmp_path)))
    damage(mirror)  # type: ignore[operator]  # one of the functions above
    before = {path: path.read_bytes() for path in mirror.rglob("*") if path.is_file()}
    with pytest.raises(error, match=match):
        ship_all(log, CloudStore(settings(tmp_path)))
    assert before == {path: path.read_bytes() for path in mirror.rglob("*") if path.is_file()}
    log.close()


def test_rows_are_not_left_behind(tmp_path: Path) -> None:
    """Another URL is refused where files are in the old mirror only; so is a mirror that lost them."""
    root, config = tmp_path / "root", settings(tmp_path)
    land(root, 2)
    log = reopen(root)
    ship_all(log, CloudStore(config), keep=0.0)
    with pytest.raises(ConfigError, match=r"are in file:.* only; set it back"):
        Shipper(log, CloudStore(settings(tmp_path / "elsewhere")))
    for path in (tmp_path / "mirror" / "commits").glob("*.json"):
        path.unlink()
    with pytest.raises(LandingError, match=r"were only there. .*--ship-missing"):
        Shipper(log, CloudStore(config)).prepare()
    log.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_random_lives(tmp_path: Path, seed: int) -> None:
    """Landing, shipping, removing, expiring, dying and moving to new hosts, in any order."""
    rng = Random(seed)
    config = settings(tmp_path)
    mirror = tmp_path / "mirror"
    host, hosts, number = tmp_path / "host-0", 0, 2
    land(host, number)
    for step in range(14):
        what = rng.choice(["land", "ship", "ship", "cut", "cut", "move"])
        if what == "land":
            number += rng.randint(1, 3)
            land(host, number, f"w{step}")
            continue
        if what == "move" and not can_be_fetched(mirror):
            continue
        if what == "move":
            hosts += 1
            host = tmp_path / f"host-{hosts}"
            fetch(host, CloudStore(config))
        log = reopen(host, f"w{step}")
        try:
            store = CutStore(config, rng.randint(0, 30) if what != "ship" else None)
            if rng.random() < 0.3:
                expire(log, CloudStore(config))
            ship_all(log, store, keep=rng.choice([None, 0.0]))
        except Cut:
            check(mirror, is_whole=False)
        finally:
            log.close()
    number += 1
    log = reopen(host, "claim")
    ship_all(log, CloudStore(config))
    log.close()
    land(host, number, "last")
    log = reopen(host, "end")
    ship_all(log, CloudStore(config))
    floor = log.floor
    log.close()
    rows = check(mirror, is_whole=True)
    lsns = {lsn for lsn, _ in rows}
    expected = landed(tmp_path / "expected", number)
    assert lsns <= expected
    assert lsns == expected or floor >= 0
    assert verify(host).is_clean, verify(host).findings


def can_be_fetched(mirror: Path) -> bool:
    """Whether a mirror has all that there was when it began, or its first checkpoint."""
    first = (mirror / entry_path(0)).exists() or any(mirror.glob("commits/checkpoints/*"))
    names = [path.name for path in mirror.glob("commits/*.json")]
    return first and newest_entry(names) >= 0 and (mirror / "layout.json").exists()
