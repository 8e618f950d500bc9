"""Verify looks at each of several sources, and at the CSNs that they have in common."""

import dataclasses
import hashlib
import io
from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kit.landrun import Landing
from kit.simdisk import SimFiles

from gaussdecode.land.layout import SEVERAL, Layout
from gaussdecode.land.names import LAYOUT
from gaussdecode.land.verify import Report, verify_files
from gaussdecode.model.account import Account, counted_files, files_of
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import LandingFile, SourcePosition

MARKS = (4, 6, 9)
"""Up to which CSN everything is in each entry."""

Change = Callable[[CommitEntry], CommitEntry]


def overwrite(files: SimFiles, path: str, content: bytes) -> None:
    """Replace a file by hand."""
    files.unlink(path)
    handle = files.create(path)
    files.write(handle, content)


def with_csn(files: SimFiles, file: LandingFile, csn: int) -> LandingFile:
    """Give the rows of a file a CSN, and the file a source."""
    rows = pq.read_table(io.BytesIO(files.read(file.path)))
    rows = rows.append_column("gd_csn", pa.array([csn] * len(rows), pa.int64()))
    sink = io.BytesIO()
    pq.write_table(rows, sink)
    raw = sink.getvalue()
    overwrite(files, file.path, raw)
    checksum = f"sha256:{hashlib.sha256(raw).hexdigest()}"
    return dataclasses.replace(file, bytes=len(raw), checksum=checksum, source="dn1")


def sums(entry: CommitEntry, since: Mapping[str, SourcePosition]) -> dict[str, object]:
    """The sums of each source, as its files have it."""
    found = {}
    for name, at in entry.positions.items():
        counts = counted_files(files_of(entry.files, name))
        begun = since.get(name, at)
        account = Account((begun.epoch, begun.lsn), (at.epoch, at.lsn), counts, counts)
        found[name] = account.to_record()
    return {"sums_by_source": found}


def shared(csns: tuple[int, int], changes: Mapping[int, Change]) -> Report:
    """Verify two data entries of two sources, of which the second one had nothing."""
    return verify_files(landed(csns, changes))


def landed(csns: tuple[int, int], changes: Mapping[int, Change]) -> SimFiles:
    """Make them; the schemas are those of one source, as early versions had them."""
    files = SimFiles()
    Landing(files, transactions=2, block=100).run()
    layout = Layout.from_bytes(files.read(LAYOUT))
    (identity,) = layout.sources.values()
    overwrite(
        files,
        LAYOUT,
        dataclasses.replace(
            layout,
            order="csn",
            sources={"dn1": identity, "dn2": identity},
            capabilities=(*layout.capabilities, SEVERAL),
        ).to_bytes(),
    )
    previous, since = "", dict[str, SourcePosition]()
    for n, mark in enumerate(MARKS):
        path = f"commits/{n:020d}.json"
        entry = CommitEntry.from_bytes(files.read(path))
        (position,) = entry.positions.values()
        at = {
            "dn1": dataclasses.replace(position, csn=mark),
            "dn2": SourcePosition(7, 1, 100 + n, mark),
        }
        entry = dataclasses.replace(
            entry,
            previous=previous or entry.previous,
            positions=at,
            files=tuple(with_csn(files, file, csns[n - 1]) for file in entry.files),
        )
        entry = dataclasses.replace(entry, extra=sums(entry, since) if n else {})
        entry = (changes[n](entry) if n in changes else entry).sealed()[0]
        overwrite(files, path, entry.to_bytes())
        previous, since = entry.hash, at
    return files


def test_two_sources_are_clean() -> None:
    """With CSNs at the very bounds of their entries."""
    report = shared((6, 9), {})
    assert report.is_clean, report.findings
    assert {name: at.csn for name, at in report.positions.items()} == {"dn1": 9, "dn2": 9}
    assert shared((5, 7), {}).is_clean


@pytest.mark.parametrize(
    ("csns", "found"),
    [
        ((6, 6), "entry 2: dn1: rows with CSN 6, outside of its CSNs (6 to 9]"),
        ((6, 10), "entry 2: dn1: rows with CSN 10, outside of its CSNs (6 to 9]"),
        ((4, 9), "entry 1: dn1: rows with CSN 4, outside of its CSNs (4 to 6]"),
    ],
)
def test_a_csn_outside_of_its_entry(csns: tuple[int, int], found: str) -> None:
    """Too early or too late, by one."""
    assert shared(csns, {}).findings == [found]


def moved(entry: CommitEntry) -> CommitEntry:
    """A source that is further than the other."""
    at = dataclasses.replace(entry.positions["dn2"], csn=10)
    return dataclasses.replace(entry, positions={**entry.positions, "dn2": at})


def stranger(entry: CommitEntry) -> CommitEntry:
    """A file of a source that the landing has not."""
    other = dataclasses.replace(entry.files[0], source="dn3")
    return dataclasses.replace(entry, files=(other, *entry.files[1:]))


def swapped(entry: CommitEntry) -> CommitEntry:
    """Rows that are counted for the other source."""
    other = tuple(dataclasses.replace(file, source="dn2") for file in entry.files)
    return dataclasses.replace(entry, files=other)


def uncounted(entry: CommitEntry) -> CommitEntry:
    """Sums of one source alone."""
    held = dict(entry.extra["sums_by_source"])
    del held["dn2"]
    return dataclasses.replace(entry, extra={"sums_by_source": held})


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (moved, "entry 2: its sources have no CSN in common"),
        (stranger, "is of no source of the landing"),
        (swapped, "entry 2: the sums of dn1 do not add up"),
        (uncounted, "entry 2 has no sums, but entries before it have them"),
    ],
)
def test_damage_is_found(change: Change, found: str) -> None:
    """What one source has never stands for another."""
    findings = shared((6, 9), {2: change}).findings
    assert any(found in finding for finding in findings), findings
