"""Verify finds what it is there to find: each kind of damage, one at a time."""

import dataclasses
import datetime as dt
import functools
import hashlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kit.landrun import Landing
from kit.simdisk import SimFiles

from gaussdecode.errors import LandingError
from gaussdecode.land.files import Files
from gaussdecode.land.retention import retain
from gaussdecode.land.stray_files import Sums
from gaussdecode.land.verify import Report, verify, verify_files
from gaussdecode.model.account import Account
from gaussdecode.model.entry import IN_ORDER, SUMS, CommitEntry
from gaussdecode.model.landing import Position

LAST = f"commits/{2:020d}.json"


def landed() -> SimFiles:
    """Two data entries of two tables, without checkpoint."""
    files = SimFiles()
    Landing(files, transactions=2, block=100).run()
    return files


def overwrite(files: SimFiles, path: str, content: bytes) -> None:
    """Replace a file by hand."""
    if files.size(path) is not None:
        files.unlink(path)
    handle = files.create(path)
    files.write(handle, content)


def last(files: SimFiles) -> CommitEntry:
    """The newest entry."""
    return CommitEntry.from_bytes(files.read(LAST))


def change_rows(files: SimFiles, change: Callable[[pa.Table], pa.Table], **facts: object) -> None:
    """Write other rows into a file of the last entry, and an entry that fits them."""
    entry = last(files)
    file = entry.files[0]
    table = change(pq.read_table(io.BytesIO(files.read(file.path))))
    sink = io.BytesIO()
    pq.write_table(table, sink)
    raw = sink.getvalue()
    overwrite(files, file.path, raw)
    described = dataclasses.replace(
        file,
        bytes=len(raw),
        checksum=f"sha256:{hashlib.sha256(raw).hexdigest()}",
        rows=table.num_rows,
        **facts,  # type: ignore[arg-type]
    )
    changed = dataclasses.replace(entry, files=(described, *entry.files[1:]))
    overwrite(files, LAST, changed.to_bytes())


def with_column(name: str, values: list[object]) -> Callable[[pa.Table], pa.Table]:
    """Set a column."""

    def change(table: pa.Table) -> pa.Table:
        index = table.schema.get_field_index(name)
        field = table.schema.field(index)
        return table.set_column(index, field, pa.array(values, field.type))

    return change


def test_clean_landing_is_clean() -> None:
    """Counts are right and nothing is found."""
    report = verify_files(landed())
    assert report.is_clean
    assert (report.entries, report.first_n, report.last_n) == (3, 0, 2)
    assert (report.files, report.rows, report.tables) == (4, 8, 2)
    assert report.ops == {"I": 8}
    assert report.floor == -1
    assert report.positions["orders"].lsn == 0x1200
    assert report.framed == {"I": 8}
    assert report.left_out == {}


def test_landing_of_before_has_no_sums() -> None:
    """Entries that never had sums are fine, and sums may begin in the middle of the log."""
    files = SimFiles()
    Landing(files, transactions=3, block=100).run()
    previous = CommitEntry.from_bytes(files.read(f"commits/{0:020d}.json")).hash
    for n in (1, 2, 3):
        path = f"commits/{n:020d}.json"
        entry = CommitEntry.from_bytes(files.read(path))
        said = {} if n < 3 else entry.extra
        changed = dataclasses.replace(entry, previous=previous, extra=said).sealed()[0]
        overwrite(files, path, changed.to_bytes())
        previous = changed.hash
    report = verify_files(files)
    assert report.is_clean, report.findings
    assert report.left_out == {"empty": {"transactions": 1}}


def flip(files: SimFiles) -> None:
    """One bit in a data file."""
    file = last(files).files[0]
    raw = bytearray(files.read(file.path))
    raw[100] ^= 1
    overwrite(files, file.path, bytes(raw))


def cut(files: SimFiles) -> None:
    """A data file that lost its end."""
    file = last(files).files[0]
    overwrite(files, file.path, files.read(file.path)[:-1])


def remove(files: SimFiles) -> None:
    """A data file that is gone."""
    files.unlink(last(files).files[0].path)


def remove_schema(files: SimFiles) -> None:
    """A schema file that is gone."""
    file = last(files).files[0]
    files.unlink(f"schemas/{file.table}/{file.schema_id}.json")


def repeat(files: SimFiles) -> None:
    """A row twice."""
    change_rows(files, with_column("gd_seq", [0, 0]))


def gap(files: SimFiles) -> None:
    """A number left out."""
    change_rows(files, with_column("gd_seq", [0, 7]))


def lose(files: SimFiles) -> None:
    """A row less."""
    change_rows(files, lambda table: table.slice(0, 1), ops={"I": 1})


def outside(files: SimFiles) -> None:
    """Rows of a position that the entry before covers."""
    change_rows(files, with_column("gd_lsn", [0x1100, 0x1100]))


def miscount(files: SimFiles) -> None:
    """Another operation than the entry counts."""
    change_rows(files, with_column("gd_op", ["I", "D"]))


def stray(files: SimFiles) -> None:
    """A Parquet file of a number that is not in the log."""
    file = last(files).files[0]
    path = file.path.replace(f"{2:020d}", f"{9:020d}")
    overwrite(files, path, files.read(file.path))


def unnamed(files: SimFiles) -> None:
    """A second file for an entry that names one."""
    file = last(files).files[0]
    overwrite(files, file.path.replace(".parquet", "-1.parquet"), files.read(file.path))


def foreign(files: SimFiles) -> None:
    """Somebody wrote below the root."""
    file = last(files).files[0]
    overwrite(files, f"{file.path.rpartition('/')[0]}/part-0.parquet", b"x")


def unfinished(files: SimFiles) -> None:
    """A leftover of a dead process."""
    file = last(files).files[0]
    directory = file.path.rpartition("/")[0]
    overwrite(files, f"{directory}/.gd-dead-00000000000000000003-1.parquet", b"x")


def hole(files: SimFiles) -> None:
    """An entry that is gone."""
    files.unlink(f"commits/{1:020d}.json")


def resum(files: SimFiles, change: Callable[[Account], Account | None]) -> None:
    """Give the last entry other sums, and the hash that goes with them."""
    entry = last(files)
    assert entry.account is not None
    account = change(entry.account)
    said = {} if account is None else {SUMS: account.to_record()}
    overwrite(files, LAST, dataclasses.replace(entry, extra=said).to_bytes())


def more_framed(files: SimFiles) -> None:
    """The reader saw a row that is nowhere."""
    resum(files, lambda account: dataclasses.replace(account, framed={"I": 5}))


def more_landed(files: SimFiles) -> None:
    """A row was handed over that no file holds."""
    resum(files, lambda of: dataclasses.replace(of, framed={"I": 5}, landed={"I": 5}))


def left_out(files: SimFiles) -> None:
    """A row that nobody framed was left out."""
    resum(files, lambda of: dataclasses.replace(of, left_out={"filtered": {"I": 1}}))


def later(files: SimFiles) -> None:
    """A stretch that begins after the position before."""
    resum(files, lambda of: dataclasses.replace(of, since=(0, of.since[1] + 1)))


def no_sums(files: SimFiles) -> None:
    """An entry that lost its sums."""
    resum(files, lambda _: None)


def turned(files: SimFiles) -> None:
    """Rows of a file that changed places."""
    change_rows(
        files, lambda table: table.take([1, 0]), first=Position(0x1200, 1), last=Position(0x1200, 0)
    )


def misplaced(files: SimFiles) -> None:
    """An entry that says of a file another first row than it has."""
    change_rows(files, lambda table: table, first=Position(0x1200, 1))


def cut_in_two(files: SimFiles, *parts: list[int]) -> None:
    """The first file of the last entry as several, with these of its rows."""
    entry = last(files)
    (file, *others) = entry.files
    table = pq.read_table(io.BytesIO(files.read(file.path)))
    made = []
    for k, part in enumerate(parts):
        sink = io.BytesIO()
        pq.write_table(table.take(part), sink)
        raw = sink.getvalue()
        path = file.path if not k else file.path.replace(".parquet", f"-{k}.parquet")
        overwrite(files, path, raw)
        checksum = f"sha256:{hashlib.sha256(raw).hexdigest()}"
        first, end = (Position(file.first.lsn, file.first.seq + row) for row in (part[0], part[-1]))
        made.append(
            dataclasses.replace(
                file,
                path=path,
                bytes=len(raw),
                checksum=checksum,
                rows=len(part),
                first=first,
                last=end,
                ops={"I": len(part)},
            )
        )
    hidden = (".gd-x", *entry.hidden)
    overwrite(
        files, LAST, dataclasses.replace(entry, files=(*made, *others), hidden=hidden).to_bytes()
    )


def overlapping(files: SimFiles) -> None:
    """Files of a table that are not in order."""
    cut_in_two(files, [1], [0])


@pytest.mark.parametrize(
    ("damage", "finding"),
    [
        (turned, "its rows are not in order"),
        (
            overlapping,
            "-1.parquet of entry 2: its rows are not in order, or do not follow those of the table's file",
        ),
        (misplaced, "begins with 0/1200 row 0, entry 2 says 0/1200 row 1"),
        (flip, "checksum differs"),
        (cut, "bytes long"),
        (remove, "is missing"),
        (remove_schema, "entry 1 needs it"),
        (repeat, "missing or repeated"),
        (gap, "missing or repeated"),
        (lose, "missing or repeated"),
        (outside, "outside of its positions"),
        (miscount, "entry 2 says"),
        (stray, "entry 9, which is not in the log"),
        (unnamed, "not named by entry 2"),
        (foreign, "not ours"),
        (unfinished, "is unfinished"),
        (hole, "the chain ends after entry 0"),
        (more_framed, "the reader framed I 5, of which I 4 landed"),
        (more_landed, "I 5 were handed over, the files hold I 4"),
        (left_out, "left out: filtered: I 1"),
        (later, "its stretch of the stream is 0/1100"),
        (no_sums, "entry 2 has no sums, but entries before it have them"),
        (lose, "I 4 were handed over, the files hold I 3"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_damage_is_found(damage: Callable[[SimFiles], None], finding: str) -> None:
    """Each kind of damage is reported in words an operator understands."""
    files = landed()
    damage(files)
    report = verify_files(files)
    assert any(finding in each for each in report.findings), report.findings


def test_files_in_order_are_clean_and_early_ones_need_not_be() -> None:
    """A table may have several files; entries of before the word was given may mix their rows."""
    files = landed()
    cut_in_two(files, [0], [1])
    assert verify_files(files).is_clean
    files = landed()
    turned(files)
    entry = last(files)
    assert entry.extra.pop(IN_ORDER) is True
    overwrite(files, LAST, entry.to_bytes())
    report = verify_files(files)
    assert report.is_clean, report.findings


def test_running_daemon_has_unfinished_files() -> None:
    """While somebody has the landing, unfinished files are no finding."""
    files = landed()
    unfinished(files)
    files.lock()
    assert verify_files(files).is_clean


def test_findings_are_bounded() -> None:
    """A landing in ruins does not fill the memory with sentences."""
    report = Report()
    for number in range(5000):
        report.add(str(number))
    assert len(report.findings) == 1000
    assert report.is_cut


def test_directory_without_landing_is_refused(tmp_path: Path) -> None:
    """A typing mistake in the path is not a clean landing."""
    with pytest.raises(LandingError, match=r"no layout\.json"):
        verify(tmp_path)


def test_real_directory_is_verified(tmp_path: Path) -> None:
    """The command's function, on a real directory."""
    Landing(Files(tmp_path)).run()
    assert verify(tmp_path).is_clean


class Meanwhile(SimFiles):
    """A disk on which something else happens when a path is opened for the first time."""

    def __init__(self, files: SimFiles, happens: Callable[[], object], at: str) -> None:
        super().__init__(files.image)
        self.happens = happens
        self.at = at

    def open(self, path: str) -> BinaryIO:
        if path.startswith(self.at) and self.at:
            self.at = ""
            self.happens()
        return super().open(path)


def forget(files: SimFiles) -> None:
    """Retention, in the daemon beside us."""
    daemon = SimFiles(files.image)
    log = Landing(daemon, "daemon").open()
    assert retain(log, dt.timedelta(0)) is not None
    log.close()


def retained_places() -> list[str]:
    """Everything that `verify` opens, by its directory and number."""
    files = SimFiles()
    Landing(files, transactions=9).run()
    opened: list[str] = []
    watched = Meanwhile(files, list, "")
    whole = SimFiles.open

    def note(path: str) -> BinaryIO:
        opened.append(path)
        return whole(watched, path)

    watched.open = note  # type: ignore[method-assign]
    verify_files(watched)
    return list(dict.fromkeys(opened))


def test_retention_beside_it_is_no_finding() -> None:
    """Whatever `verify` is about to open when retention takes it: the verdict is right."""
    places = retained_places()
    assert len(places) > 20
    for place in places:
        files = SimFiles()
        Landing(files, transactions=9).run()
        verified = Meanwhile(files, functools.partial(forget, files), place)
        verified.lock()  # the daemon has it
        report = verify_files(verified)
        assert report.is_clean, (place, report.findings)
        assert report.first_n is not None
        assert report.first_n <= report.floor + 1
        assert not verified.at, place


def test_damage_beside_retention_is_found() -> None:
    """What is above the floor is no less looked at."""
    files = SimFiles()
    Landing(files, transactions=9).run()
    log = Landing(files, "look").open()
    newest = next(e for e in reversed([*log.iterate(0, log.next_n - 1)]) if e.kind == "data")
    log.close()
    files.unlink(newest.files[0].path)
    verified = Meanwhile(files, functools.partial(forget, files), "commits/checkpoints")
    report = verify_files(verified)
    assert report.findings[0] == f"{newest.files[0].path} of entry {newest.n} is missing"
    assert all(f"entry {newest.n}" in finding for finding in report.findings)


def test_each_checkpoint_is_read_once() -> None:
    """However many entries it holds, and however many files they name."""
    files = SimFiles()
    Landing(files, transactions=9).run()
    opened: list[str] = []
    whole = files.open

    def note(path: str) -> BinaryIO:
        opened.append(path)
        return whole(path)

    files.open = note  # type: ignore[method-assign]
    assert verify_files(files).is_clean
    held = [path for path in opened if path.startswith("commits/checkpoints/")]
    assert max(held.count(path) for path in held) <= 2  # once more for the floor


def test_memory_does_not_grow_with_the_files() -> None:
    """Nothing of a name is kept: two sums per thousand entries are."""
    lying, named = Sums(), Sums()
    for n in range(3000):
        path = f"data/public.a/gd_date=2026-01-31/{n:020d}.parquet"
        lying.add(n, path)
        if n != 1777:
            named.add(n, path)
    assert len(lying.blocks) == 3
    assert all(total < 1 << 128 for _, total in lying.blocks.values())
    assert lying.unlike(named) == [range(1000, 2000)]
