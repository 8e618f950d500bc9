"""Opening the log, and damage that only an operator can judge."""

import dataclasses
import datetime as dt
import errno
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest
from kit.landrun import IDENTITY, START, check_invariants, put, ticking
from kit.landrun import Landing as AnyLanding
from kit.simdisk import Image, SimFiles

from gaussdecode.errors import ConfigError, DiskError, IdentityError, LandingError
from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.entry_steps import Draft
from gaussdecode.land.failpoints import Operation
from gaussdecode.land.files import Files
from gaussdecode.land.layout import HIDES_TRUNCATE
from gaussdecode.land.names import data_directory
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import EntryKind, SourcePosition

Landing = functools.partial(AnyLanding, block=100)


def landed(transactions: int = 2) -> SimFiles:
    """A landing with a few entries, closed."""
    files = SimFiles()
    Landing(files, transactions=transactions).run()
    return files


def rewrite(files: SimFiles, path: str, change: Callable[[bytes], bytes]) -> None:
    """Do what an editor does to a file."""
    content = change(files.read(path))
    files.unlink(path)
    handle = files.create(path)
    files.write(handle, content)
    files.sync(handle)


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(IDENTITY)])
def test_other_source_is_refused(field: str) -> None:
    """The error names the field and both values."""
    files = landed()
    other = dataclasses.replace(IDENTITY, **{field: "other"})
    with pytest.raises(IdentityError) as caught:
        CommitLog.open(files, other, source="orders")
    assert field.replace("_", " ") in str(caught.value)
    assert repr(getattr(IDENTITY, field)) in str(caught.value)
    assert "'other'" in str(caught.value)


def test_other_order_is_refused() -> None:
    """The order of a landing is fixed when it is created."""
    with pytest.raises(IdentityError, match="order 'lsn' in the landing, 'csn' now"):
        CommitLog.open(landed(), IDENTITY, order="csn")


@pytest.mark.parametrize("version", [b"0", b"2", b'"1"', b"null"])
def test_other_layouts_are_refused(version: bytes) -> None:
    """A newer or an older program keeps its hands off, names both versions, and stays down."""
    files = landed()
    rewrite(files, "layout.json", lambda raw: raw.replace(b'"version":1', b'"version":' + version))
    before = files.read("layout.json")
    with pytest.raises(ConfigError, match=r"has layout version .*, this program .* version 1;"):
        Landing(files).open()
    assert files.read("layout.json") == before


def test_unknown_capability_is_refused() -> None:
    """A landing that needs more than this program knows."""
    files = landed()
    rewrite(files, "layout.json", lambda raw: raw.replace(b'"compact"', b'"magic"'))
    with pytest.raises(ConfigError, match="needs magic"):
        Landing(files).open()


def test_missing_layout_is_refused() -> None:
    """Entries without a layout are not a new landing."""
    files = landed()
    files.unlink("layout.json")
    with pytest.raises(LandingError, match=r"layout\.json is missing"):
        Landing(files).open()


@pytest.mark.parametrize(
    "path", ["snapshots/ledger.json", "snapshots/fingerprints.json", "mirror.json"]
)
def test_remains_of_another_landing_are_refused(path: str) -> None:
    """What it knew of tables that it had read, of the catalogue or of its mirror, is not the new one's."""
    files = SimFiles()
    if "/" in path:
        files.make_directory("snapshots")
    files.write(files.create(path), b"{}")
    with pytest.raises(
        LandingError, match=rf"{path} of a landing is there: .* empty the directory"
    ):
        Landing(files).open()
    assert files.size("layout.json") is None


def test_reopening_changes_nothing() -> None:
    """A clean landing is opened without creating, renaming or removing anything."""
    files = landed()
    again = SimFiles(files.image)
    log = Landing(again, "second").open()
    assert {operation for operation, _ in again.operations} == {Operation.SYNC_DIRECTORY}
    assert log.findings == []
    assert log.next_n == 3
    assert log.position == SourcePosition(0, 1, 0x1200)


def damage_flip(files: SimFiles) -> None:
    """Flip a bit in the middle of the log."""
    rewrite(files, f"commits/{1:020d}.json", lambda raw: raw.replace(b"public.a", b"public.b", 1))


def damage_torn(files: SimFiles) -> None:
    """Cut off the tail of an entry."""
    rewrite(files, f"commits/{1:020d}.json", lambda raw: raw[:-10])


def damage_hole(files: SimFiles) -> None:
    """Remove an entry in the middle."""
    files.unlink(f"commits/{1:020d}.json")


def damage_older(files: SimFiles) -> None:
    """Restore an older copy of the log."""
    files.unlink(f"commits/{2:020d}.json")


def damage_swap(files: SimFiles) -> None:
    """Put a valid entry in the place of another."""
    other = SimFiles(Image())
    landing = Landing(other, transactions=2)
    landing.run()
    raw = other.read(f"commits/{1:020d}.json")
    entry = dataclasses.replace(CommitEntry.from_bytes(raw), extra={"x": 1})
    rewrite(files, f"commits/{1:020d}.json", lambda _: entry.to_bytes())


def test_checkpoint_of_another_landing_is_a_hard_stop() -> None:
    """It is whole and sealed, and not what the entries lead to: nothing may go on from it."""
    files, other = SimFiles(), SimFiles()
    for made, step in ((files, 1), (other, 2)):
        clock = ticking(dt.timedelta(minutes=step))
        log = CommitLog.open(made, IDENTITY, now=clock, block=3)
        for n, kind in enumerate((EntryKind.GENESIS, EntryKind.IDLE, EntryKind.IDLE), 1):
            log.commit(Draft(kind=kind, position=SourcePosition(0, 1, n)))
        log.close()
    (item,) = files.items("commits/checkpoints")
    path = f"commits/checkpoints/{item.name}"
    rewrite(files, path, lambda _: other.read(path))
    with pytest.raises(LandingError, match="its header differs from the state after entry 2 in"):
        CommitLog.open(files, IDENTITY, block=3)


def test_file_that_is_there_before_its_entry_is_a_hard_stop() -> None:
    """It is not ours, and a reader may have it: nothing is put in its place."""
    (path,) = (
        path
        for path in landed(1).image.paths()
        if "/data/public.a/" in f"/{path}" and path.endswith(".parquet")
    )
    image = Image()

    def come_between(_: int, operation: Operation, target: str) -> int:
        if operation is Operation.CREATE and target.rpartition("/")[0] == path.rpartition("/")[0]:
            put(SimFiles(image, holds_lock=False), path, b"of somebody else")
        return 0

    files = SimFiles(image, fail=come_between)
    with pytest.raises(LandingError, match="is there before its entry"):
        Landing(files, transactions=1).run()
    assert files.read(path) == b"of somebody else"


def test_other_entry_under_the_same_number_fences() -> None:
    """It came between the decision and the name: whoever was slower stops, and keeps it."""
    path = f"commits/{1:020d}.json"
    image = Image()

    def come_between(_: int, operation: Operation, target: str) -> int:
        if operation is not Operation.LINK or target != path:
            return 0
        put(SimFiles(image, holds_lock=False), path, b"of somebody else")
        return errno.EEXIST

    files = SimFiles(image, fail=come_between)
    with pytest.raises(LandingError, match="fenced"):
        Landing(files, transactions=1).run()
    assert files.read(path) == b"of somebody else"


def other_first_entry(files: SimFiles) -> None:
    """Put another entry 1 on the disk, whole and sealed, as another writer leaves it."""
    raw = files.read(f"commits/{1:020d}.json")
    entry = dataclasses.replace(CommitEntry.from_bytes(raw), extra={"x": 1}).sealed()[0]
    put(files, f"commits/{1:020d}.json", entry.to_bytes())


def further_entry(files: SimFiles) -> None:
    """Add the next entry, as another writer does on a disk whose lock does not hold."""
    raw = files.read(f"commits/{1:020d}.json")
    entry = CommitEntry.from_bytes(raw)
    more = dataclasses.replace(
        entry, n=2, kind=EntryKind.IDLE, previous=entry.hash, files=(), hidden=(), extra={}
    ).sealed()[0]
    put(files, f"commits/{2:020d}.json", more.to_bytes())


def further_process(files: SimFiles) -> None:
    """Recover the landing, and land more, on a disk whose lock does not hold."""
    Landing(files, "fast", transactions=2).run()


@pytest.mark.parametrize("come_between", [other_first_entry, further_entry, further_process])
def test_writer_that_was_passed_by_shows_nothing(
    come_between: Callable[[SimFiles], None],
) -> None:
    """The log on disk is not the one it goes on from: nothing of its own gets a name."""
    image = landed(1).image
    files = SimFiles(image)
    after: list[set[str]] = []

    def notice(_: int, operation: Operation, path: str) -> int:
        if operation is Operation.LINK and path == f"commits/.{2:020d}.json" and not after:
            come_between(SimFiles(image, holds_lock=False))
            after.append(named_paths(image))
        return 0

    files._fail = notice
    with pytest.raises(LandingError, match="fenced"):
        Landing(files, "slow", transactions=3).run()
    assert after == [named_paths(image)]


def named_paths(image: Image) -> set[str]:
    """What a reader may look at."""
    return {path for path in image.paths() if not path.rpartition("/")[2].startswith(".")}


def test_hidden_entry_under_another_number_is_not_taken() -> None:
    """It is whole and next by its text; but nobody writes one under another's name."""
    files = undecided_landing()
    files.rename(f"commits/.{2:020d}.json", f"commits/.{9:020d}.json")
    log = Landing(files, "second").open()
    assert log.next_n == 2
    assert "hidden entry 9 was not decided; removed" in log.findings


def test_hidden_entry_that_does_not_follow_is_not_shown() -> None:
    """An older log with a later hidden entry: what does not follow is no part of it."""
    files = undecided_landing()
    other_first_entry(files)
    log = Landing(files, "second").open()
    assert log.next_n == 2
    assert "hidden entry 2 was not decided; removed" in log.findings
    assert not [path for path in files.image.paths() if f"/{2:020d}" in path]


def undecided_landing() -> SimFiles:
    """A landing whose entry 2 is decided, and none of whose files has its name yet."""
    image = Image()
    files = SimFiles(
        image,
        fail=lambda _n, operation, path: (
            errno.EIO
            if operation is Operation.SYNC_DIRECTORY
            and path == "commits"
            and SimFiles(image).size(f"commits/.{2:020d}.json") is not None
            else 0
        ),
    )
    with pytest.raises(DiskError):
        Landing(files, transactions=2).run()
    again = SimFiles(files.image)
    assert again.size(f"commits/.{2:020d}.json") is not None
    return again


@pytest.mark.parametrize("at", ["sync", "second name"])
def test_failure_after_the_decision_keeps_what_the_entry_names(at: str) -> None:
    """A writer that fails there removes no file; the next start completes the entry."""
    if at == "sync":
        files = undecided_landing()
    else:
        renamed: list[str] = []

        def fail(_: int, operation: Operation, path: str) -> int:
            name = path.rpartition("/")[2]
            if operation is Operation.RENAME and name.startswith(f"{2:020d}-"):
                renamed.append(path)
            return errno.EIO if len(renamed) == 2 else 0

        files = SimFiles(fail=fail)
        with pytest.raises(DiskError):
            Landing(files, transactions=2).run()
        files = SimFiles(files.image)
    log = Landing(files, "second").open()
    assert log.next_n == 3
    assert any("completed" in finding for finding in log.findings)
    log.close()
    check_invariants(files, 2, with_retention=False)


def test_hidden_entry_of_a_slower_writer_is_a_hard_stop_once_its_files_show() -> None:
    """Its number is another's entry by now, but a reader may have its file."""
    files, other = landed(), SimFiles()
    log = CommitLog.open(other, IDENTITY, now=ticking(dt.timedelta(minutes=1)), writer="other")
    log.close()
    Landing(other, "other", transactions=2).run()
    entry = CommitEntry.from_bytes(other.read(f"commits/{1:020d}.json"))
    (first, *_) = entry.files
    moved = dataclasses.replace(first, path=first.path.replace(f"{1:020d}-", f"{1:020d}-0"))
    slower = dataclasses.replace(entry, files=(moved, *entry.files[1:])).sealed()[0]
    put(files, f"commits/.{1:020d}.json", slower.to_bytes())
    put(files, moved.path, other.read(first.path))
    before = sorted(files.image.paths())
    with pytest.raises(LandingError, match="has been renamed already"):
        Landing(files, "second").open()
    assert sorted(files.image.paths()) == before


def test_file_that_is_not_the_one_that_lost_its_name_is_a_hard_stop() -> None:
    """A committed file is gone, and what lies under its hidden name is something else."""
    files = landed()
    entry = json.loads(files.read(f"commits/{2:020d}.json"))
    path = entry["files"][0]["path"]
    hidden = f"{path.rpartition('/')[0]}/{entry['hidden'][0]}"
    files.rename(path, hidden)
    rewrite(files, hidden, lambda raw: raw[:-1] + b"?")
    with pytest.raises(LandingError, match=r"is missing, and .* has other content"):
        Landing(files, "second").open()
    assert files.size(hidden) == entry["files"][0]["bytes"]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (damage_flip, "altered"),
        (damage_torn, "torn"),
        (damage_hole, "entry 1 expected, 2 found"),
        (damage_older, "belong to no entry"),
        (damage_swap, "does not follow"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_damaged_log_is_a_hard_stop(damage: Callable[[SimFiles], None], reason: str) -> None:
    """Whatever is wrong with the log, nothing is deleted and the daemon does not start."""
    files = landed()
    damage(files)
    before = sorted(files.image.paths())
    with pytest.raises(LandingError, match=reason):
        Landing(files, "second").open()
    assert sorted(files.image.paths()) == before


def test_missing_file_of_the_last_entry_is_reported() -> None:
    """A file deleted by hand does not stop the daemon, but is not passed over in silence."""
    files = landed()
    entry = json.loads(files.read(f"commits/{2:020d}.json"))
    files.unlink(entry["files"][0]["path"])
    log = Landing(files, "second").open()
    assert any("DAMAGED" in finding and "missing" in finding for finding in log.findings)


def test_renamed_file_without_its_entry_is_a_hard_stop() -> None:
    """A hidden entry that cannot be completed, with a file that somebody may have seen."""
    files = landed()
    path = f"commits/{2:020d}.json"
    files.link(path, f"commits/.{2:020d}.json")
    files.unlink(path)
    entry = json.loads(files.read(f"commits/.{2:020d}.json"))
    files.unlink(entry["files"][0]["path"])
    before = sorted(files.image.paths())
    with pytest.raises(LandingError, match="belong to no entry"):
        Landing(files, "second").open()
    assert sorted(files.image.paths()) == before


def test_lost_rename_of_a_shown_file_is_repaired() -> None:
    """A hidden file that a committed entry names gets its name back."""
    files = landed()
    entry = json.loads(files.read(f"commits/{2:020d}.json"))
    path = entry["files"][0]["path"]
    hidden = f"{path.rpartition('/')[0]}/{entry['hidden'][0]}"
    files.rename(path, hidden)
    log = Landing(files, "second").open()
    assert files.size(path) == entry["files"][0]["bytes"]
    assert any("renamed" in finding for finding in log.findings)
    log.close()
    check_invariants(files, 2, with_retention=False)


def test_names_of_others_are_not_swept() -> None:
    """Only what matches our own pattern is removed."""
    files = landed()
    for path in (
        "commits/.keep",
        "data/.gd-note",
        "commits/.gd-first-00000000000000000009-1.entry",
    ):
        files.close_handle(files.create(path))
    Landing(files, "second").open()
    left = set(files.image.paths())
    assert {"commits/.keep", "data/.gd-note"} <= left
    assert "commits/.gd-first-00000000000000000009-1.entry" not in left


def test_position_never_goes_back() -> None:
    """A lower position is refused before anything is written; the log is broken then."""
    files = landed()
    log = Landing(files, "second").open()
    operations = len(files.operations)
    with pytest.raises(LandingError, match="goes back"):
        log.commit(Draft(kind=EntryKind.IDLE, position=SourcePosition(0, 1, 5)))
    assert len(files.operations) == operations
    with pytest.raises(LandingError, match="stopped at an error"):
        log.commit(Draft(kind=EntryKind.IDLE, position=SourcePosition(0, 1, 0x2000)))
    assert not log.is_uncertain


def test_new_epoch_may_begin_lower() -> None:
    """After an accepted gap the positions of another history may be smaller."""
    log = Landing(landed(), "second").open()
    entry = log.commit(Draft(kind=EntryKind.GAP, position=SourcePosition(1, 1, 5)))
    assert log.position == SourcePosition(1, 1, 5)
    assert entry.n == 3


def test_confirm_comes_after_the_entry_is_shown() -> None:
    """When the position is confirmed, the entry is durable under its name."""
    files = landed()
    log = Landing(files, "second").open()
    seen: list[bool] = []

    def confirm(entry: CommitEntry) -> None:
        _, directory = files.image.directory("commits")
        seen.append(f"{entry.n:020d}.json" in directory.synced)

    log.commit(Draft(kind=EntryKind.IDLE, position=SourcePosition(0, 1, 0x2000)), confirm)
    assert seen == [True]


def test_modification_times_rise_over_entries() -> None:
    """A stream that sorts by time reads the files of a table in position order."""
    files = SimFiles()
    landing = Landing(files, transactions=5)
    log = CommitLog.open(files, IDENTITY, now=ticking(), writer="w", block=100)
    log.close()
    landing.run()
    for table in ("public.a", "public.b"):
        times = []
        for date in files.items(f"data/{table}"):
            for item in files.items(f"data/{table}/{date.name}"):
                path = f"data/{table}/{date.name}/{item.name}"
                times.append((item.name, files.image.file(path)[1].mtime_ms))
        assert times == sorted(times)
        assert len({time for _, time in times}) == len(times) == 4


def test_clock_that_goes_back_keeps_times_rising() -> None:
    """Modification times follow the log, not a clock that was set back."""
    files = SimFiles()
    clock = iter([ticking()() for _ in range(3)])
    log = CommitLog.open(files, IDENTITY, now=lambda: next(clock), writer="w")
    one = log.commit(Draft(kind=EntryKind.GENESIS, position=SourcePosition(0, 1, 1)))
    two = log.commit(Draft(kind=EntryKind.IDLE, position=SourcePosition(0, 1, 2)))
    assert two.mtime_ms > one.mtime_ms


def test_real_landing_opens_again(tmp_path: Path) -> None:
    """The same on a real directory."""
    Landing(Files(tmp_path)).run()
    log = Landing(Files(tmp_path), "second").open()
    assert log.position == SourcePosition(0, 1, 0x1500)
    log.close()
    files = Files(tmp_path)
    check_invariants(files, 5, with_retention=False)
    files.close()


def test_start_reads_one_block_of_a_long_log() -> None:
    """However long the log, a start reads one header and the entries after it."""
    files = SimFiles()
    log = CommitLog.open(files, IDENTITY, writer="w", block=10)
    log.commit(Draft(kind=EntryKind.GENESIS, position=SourcePosition(0, 1, 1)))
    for number in range(2, 236):
        log.commit(Draft(kind=EntryKind.IDLE, position=SourcePosition(0, 1, number)))
    log.close()
    assert len([item for item in files.items("commits") if item.name.endswith(".json")]) < 20
    read: list[str] = []
    whole = files.open

    def opened(path: str) -> BinaryIO:
        read.append(path)
        return whole(path)

    files.open = opened  # type: ignore[method-assign]
    again = CommitLog.open(files, IDENTITY, writer="x", block=10)
    assert again.next_n == 235
    assert len(read) < 12
    assert [entry.n for entry in again.iterate(0, 234)] == list(range(235))


def test_capability_is_added_once_and_stays() -> None:
    """A landing whose stream begins to hide TRUNCATE says so from then on, to every reader."""
    files = landed()
    log = Landing(files).open()
    for _ in range(2):
        log.require(HIDES_TRUNCATE)
    log.close()
    layout = json.loads(files.read("layout.json"))
    assert layout["capabilities"].count(HIDES_TRUNCATE) == 1
    assert HIDES_TRUNCATE in Landing(files).open().layout.capabilities


@pytest.mark.parametrize("days", [-3, -400, 3, 400])
def test_unfinished_files_are_swept_whatever_the_clock_says(days: int) -> None:
    """A clock that leaps by days while a file is written hides nothing from the next start."""
    files = landed()
    leap = dt.timedelta(days=days)
    log = CommitLog.open(files, IDENTITY, now=lambda: START + leap, writer="dead", block=100)
    directory = data_directory("public.a", log.today())
    log.disk.ensure_directory(directory)
    path = log.disk.unfinished(directory, log.next_n, "parquet")
    files.close_handle(files.create(path))
    log.commit(Draft(kind=EntryKind.IDLE, position=SourcePosition(0, 1, 0x2000)))
    log.close()
    Landing(files, "second").open().close()
    assert path not in set(files.image.paths())


def test_files_of_an_entry_are_never_a_day_before_the_last() -> None:
    """Not even the entry that follows a leap back is in a partition nobody looks into."""
    files = landed()
    back = START - dt.timedelta(days=3)
    log = CommitLog.open(files, IDENTITY, now=lambda: back, writer="w", block=100)
    assert log.today() == log.entries.one(log.next_n - 1).committed_time.date()
    log.commit(Draft(kind=EntryKind.IDLE, position=SourcePosition(0, 1, 0x2000)))
    assert log.today() == back.date()
    log.close()
