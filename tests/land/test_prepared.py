"""Files of prepared transactions: what is written is read again, and nothing else is."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.landrun import IDENTITY

from gaussdecode.errors import LandingError
from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.entry_steps import Draft
from gaussdecode.land.files import Files, make_root
from gaussdecode.land.prepared import KeptTransaction, PreparedFiles
from gaussdecode.land.verify import verify
from gaussdecode.model.entry import ENDED, PREPARED, prepared_record
from gaussdecode.model.landing import EntryKind, SourcePosition

LAYOUT = "1:as here"
FACTS: dict[str, Any] = {  # Any: as the assembler gives them
    "xid": 7,
    "lsn": 0x100,
    "time_us": 5,
    "first_lsn": 0x80,
    "gid": b"it's \xff",
    "origin": b"far",
    "aborted": [8, 9],
    "tally": [0, 3, 1, 0, 0, 1],
    "relations": {2: b'{"name": "\xc3\xbc"}', 5: None},
}
BATCHES = [b"first" * 100, b"x", b"second" * 40000]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Of a landing."""
    make_root(tmp_path / "landing")
    return tmp_path / "landing"


@pytest.fixture
def log(root: Path) -> Iterator[CommitLog]:
    """With its first entry."""
    with_genesis = opened(root)
    position = SourcePosition(1, 1, 0x10)
    with_genesis.commit(Draft(kind=EntryKind.GENESIS, position=position))
    yield with_genesis
    with_genesis.close()


def opened(root: Path, **options: Any) -> CommitLog:  # Any: of open
    """The log of a landing."""
    return CommitLog.open(Files(root), IDENTITY, **options)


def write(log: CommitLog, **facts: object) -> KeptTransaction:
    """Write one."""
    batches = (memoryview(batch) for batch in BATCHES)
    return PreparedFiles(log, LAYOUT).write({**FACTS, **facts}, batches)


def note(log: CommitLog, *kept: KeptTransaction) -> None:
    """Name them in an entry."""
    records = [prepared_record(one.file) for one in kept]
    log.commit(Draft(kind=EntryKind.PREPARED, extra={PREPARED: records}))


def end(log: CommitLog, *kept: KeptTransaction) -> int:
    """Say in an entry that they ended; gives its number."""
    paths = [one.file.path for one in kept]
    return log.commit(Draft(kind=EntryKind.IDLE, extra={ENDED: paths})).n


def content(kept: KeptTransaction) -> list[bytes]:
    """Its batches."""
    found = []
    for offset, size in kept.places:
        data = bytearray(size)
        kept.read_into(offset, memoryview(data))
        found.append(bytes(data))
    return found


def test_what_was_written_is_read(log: CommitLog) -> None:
    """Also by another process."""
    kept = write(log)
    again = PreparedFiles(log, LAYOUT).read(kept.file)
    assert dataclasses.replace(again, disk=kept.disk) == kept
    assert content(again) == BATCHES
    for name, value in FACTS.items():
        held = getattr(again, name)
        assert (list(held) if isinstance(held, tuple) else held) == value
    assert kept.file.gid == "it's \\xff"
    assert kept.file.rows == 5


def test_the_log_knows_those_that_wait(root: Path, log: CommitLog) -> None:
    """Over starts; what ended, or was never named, goes, and nothing else."""
    first, second = write(log), write(log, xid=9, lsn=0x90)
    note(log, first, second)
    early = write(log, xid=10)
    log.find_orphans()  # as a session does when it begins
    log.forget_prepared()
    assert not (root / early.file.path).exists()
    stray = write(log, xid=11)
    assert log.prepared == [second.file, first.file], "in the order of their PREPARE"
    assert verify(root).findings == []
    log.close()
    again = opened(root)
    assert again.prepared == [second.file, first.file]
    again.forget_prepared()
    assert not (root / stray.file.path).exists()
    number = end(again, first)
    assert again.prepared == [second.file]
    again.forget_prepared(number - 1)
    assert (root / first.file.path).exists(), "the mirror has not got the entry"
    again.forget_prepared(number)
    assert not (root / first.file.path).exists()
    assert content(PreparedFiles(again, LAYOUT).read(second.file)) == BATCHES
    assert verify(root).findings == []
    again.close()


def test_checkpoints_know_them(root: Path, log: CommitLog) -> None:
    """The entry that named one may be gone by then."""
    log.close()
    log = opened(root, block=4)
    kept = write(log)
    note(log, kept)
    for _ in range(12):
        log.commit(Draft(kind=EntryKind.IDLE))
    log.close()
    headers = [
        path.read_bytes().split(b"\n")[0] for path in sorted(root.glob("commits/checkpoints/*"))
    ]
    assert all(b'"version":3' in header and kept.file.path.encode() in header for header in headers)
    log = opened(root, block=4)
    assert log.prepared == [kept.file]
    end(log, kept)
    while log.next_n % 4:
        log.commit(Draft(kind=EntryKind.IDLE))
    log.close()
    newest = max(root.glob("commits/checkpoints/*")).read_bytes().split(b"\n")[0]
    assert b'"version":2' in newest
    assert b"prepared" not in newest
    assert verify(root).findings == []


def test_another_layout_is_refused(log: CommitLog) -> None:
    """Rows are not guessed from the bytes of another program; it is said what to do."""
    kept = write(log)
    assert PreparedFiles(log, "2:otherwise", LAYOUT).read(kept.file) == kept
    with pytest.raises(LandingError, match=r"another version.*ROLLBACK PREPARED"):
        PreparedFiles(log, "2:otherwise").read(kept.file)


@pytest.mark.parametrize("at", [0, 400, 200_000, -300, -4, -1])
@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_damage_is_seen(root: Path, log: CommitLog, at: int, damage: str) -> None:
    """Wherever it is: at the start, or when the batch is read; `verify` names the file."""
    kept = write(log)
    note(log, kept)
    path = root / kept.file.path
    raw = bytearray(path.read_bytes())
    if damage == "flip":
        raw[at] ^= 1
        path.write_bytes(raw)
    elif damage == "cut":
        path.write_bytes(raw[: at or 1])
    else:
        path.unlink()
    with pytest.raises(LandingError, match=r"prepared/.*restore it"):
        content(PreparedFiles(log, LAYOUT).read(kept.file))
    (problem,) = verify(root).findings
    assert kept.file.path in problem
