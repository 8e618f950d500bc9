"""Where rows are missing, or may be, a client gets an error that names entry, position and what to do; never a hole."""

import dataclasses
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import psycopg
import pytest
from kit import rechained
from kit.served import Replication, Served, unpack_landing

from gaussdecode.errors import LandingError
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import EntryKind
from gaussdecode.model.lsn import Lsn
from gaussdecode.model.quarantine import Quarantine
from gaussdecode.serve.errors import ServeError
from gaussdecode.serve.reader import LandingReader, ReadPosition

AT = 7  # entry before which something is put; entries before and after it have rows
Change = Callable[[list[CommitEntry]], list[CommitEntry]]


def _lsn(entry: CommitEntry) -> int:
    (position,) = entry.positions.values()
    return int(position.lsn)


def _with(entries: list[CommitEntry], *more: CommitEntry) -> list[CommitEntry]:
    return [*entries[:AT], *more, *entries[AT:]]


def _gap(entries: list[CommitEntry]) -> list[CommitEntry]:
    extra = {"from_lsn": _lsn(entries[AT - 1]), "until_lsn": _lsn(entries[AT]), "text": "slot lost"}
    return _with(entries, rechained.note(entries[AT - 1], EntryKind.GAP, extra))


def _accepted_gap(entries: list[CommitEntry]) -> list[CommitEntry]:
    """As `accept-gap` writes it: it begins an epoch, at the end of what is missing."""
    whole = _gap(entries)
    gap = rechained.moved(whole[AT], lsn=_lsn(entries[AT - 1]) + 8)
    return [*whole[:AT], *(rechained.moved(entry, epoch=1) for entry in (gap, *whole[AT + 1 :]))]


def _suspect(entries: list[CommitEntry]) -> list[CommitEntry]:
    extra = {"tables": ["public.orders"], "text": "DDL beside changes"}
    return _with(entries, rechained.note(entries[AT - 1], EntryKind.SUSPECT, extra))


def _quarantine(entries: list[CommitEntry], *, is_over: bool = True) -> list[CommitEntry]:
    table = Quarantine(
        "public.orders", "public", "orders", 1, Lsn(_lsn(entries[AT - 1])), "value out of range"
    )
    noted = rechained.note(entries[AT - 1], EntryKind.QUARANTINE, table.to_extra())
    if not is_over:
        return _with(entries, noted)
    said = {"snapshot": {"epoch": 1, "lsn": _lsn(entries[AT]), "tables": {"public.orders": {}}}}
    end = rechained.note(entries[AT], EntryKind.SNAPSHOT, said)
    return [*entries[:AT], noted, entries[AT], end, *entries[AT + 1 :]]


def _epoch(entries: list[CommitEntry]) -> list[CommitEntry]:
    """A failover: the next epoch begins at a lower LSN."""
    fork = rechained.note(entries[AT - 1], EntryKind.FORK, {"text": "failover"})
    fork = rechained.moved(fork, lsn=_lsn(entries[AT - 2]))
    return [*entries[:AT], *(rechained.moved(entry, epoch=1) for entry in (fork, *entries[AT:]))]


CHANGES: dict[str, Change] = {
    "gap": _gap,
    "accepted gap": _accepted_gap,
    "suspect": _suspect,
    "quarantine": _quarantine,
    "epoch": _epoch,
}


def _ends(messages: Sequence[tuple[int, bytes]]) -> list[int]:
    return [lsn for lsn, data in messages if data.startswith(b"COMMIT")]


def _until_error(client: Replication) -> tuple[list[int], psycopg.Error]:
    """Ends of the transactions that came before an error."""
    found: list[tuple[int, bytes]] = []
    try:
        while (message := client.next()) is not None:
            found.append(message)
    except psycopg.Error as error:
        return _ends(found), error
    raise AssertionError("the stream ended without an error")


def _whole(root: Path) -> list[int]:
    """Ends of all transactions of a landing."""
    reader = LandingReader(root)
    blocks = (
        of for entry in reader.entries(0) for of in reader.blocks(entry, ReadPosition(0, 0, 0))
    )
    return [int(end) for of in blocks for end in of.transactions.end_lsn]


@pytest.mark.parametrize("kind", sorted(CHANGES))
def test_past_what_is_missing(tmp_path: Path, kind: str) -> None:
    """An error in the middle and at the start; the hint's own statements move a slot past, and the rest comes."""
    root = unpack_landing(tmp_path)
    whole = _whole(root)
    before = rechained.read(root)
    changed = rechained.write(root, CHANGES[kind](before))
    split = _lsn(changed[AT - 1])
    first = [lsn for lsn in whole if lsn <= split]
    assert 0 < len(first) < len(whole)
    with Served(root) as served, served.connect() as session:
        slots = [served.add_slot("began"), served.add_slot("begins")]
        got, error = _until_error(Replication(served, "begins"))
        assert got == first
        slots[0].confirm(AT, 1, split)
        got, at_start = _until_error(Replication(served, "began"))
        assert got == []
        assert str(at_start).partition("HINT")[0] == str(error).partition("HINT")[0]
        text = str(error)
        assert f"entry {AT}" in text
        # The same by SQL, with its code; up to the entry there is no error.
        query = "SELECT lsn, data FROM pg_logical_slot_peek_changes('begins', %s, NULL)"
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match=f"entry {AT}"):
            session.execute(query, [None])
        shown = session.execute(query, [str(Lsn(split))]).fetchall()
        assert len([1 for _, data in shown if data.startswith("COMMIT")]) == len(first)
        moves = re.findall(r"pg_replication_slot_advance\(SLOT, '([0-9A-F/]+)'\)", text)
        assert moves
        past = AT + 2 if kind == "quarantine" else AT
        last = _lsn(before[AT if kind == "quarantine" else AT - 1])
        for slot in slots:
            for lsn in moves:
                session.execute("SELECT pg_replication_slot_advance(%s, %s)", [slot.name, lsn])
            assert slot.n == past + 1
            client = Replication(served, slot.name)
            rest = _ends(client.until(served.end_lsn()))
            assert rest == [lsn for lsn in whole if lsn > last]
            client.close()


def test_open_quarantine(tmp_path: Path) -> None:
    """No client begins in it, whatever its position, unless it does not want the table."""
    root = unpack_landing(tmp_path)
    changed = rechained.write(root, _quarantine(rechained.read(root), is_over=False))
    with Served(root) as served:
        served.add_slot("copy")
        with served.connect() as session:
            end = str(Lsn(served.end_lsn()))
            session.execute("SELECT pg_replication_slot_advance('copy', %s)", [end])
        with pytest.raises(ServeError, match=r"orders do not land since .* \(entry 7\)") as caught:
            Replication(served, "copy")
        assert caught.value.sqlstate == "55000"
    reader = LandingReader(root, wanted=lambda _, name: name != "orders")
    reader.check_start(ReadPosition(len(changed), 1, 0))


def _whole_again(name: str, oid: int, like: CommitEntry) -> CommitEntry:
    """A snapshot of a table."""
    record = {"where": None, "since_n": AT, "oid": oid}
    said = {"epoch": 1, "lsn": _lsn(like), "tables": {f"public.{name}": record}}
    return rechained.note(like, EntryKind.SNAPSHOT, {"snapshot": said})


def _begins(root: Path, name: str) -> str:
    """Why a client that wants a table cannot begin at the end; empty where it can."""
    reader = LandingReader(root, wanted=lambda _, of: of == name)
    try:
        reader.check_start(dataclasses.replace(reader.end(), n=reader.landing.last_n + 1))
    except ServeError as error:
        return f"{error} {error.hint}"
    return ""


def test_a_snapshot_under_the_name_of_now_ends_a_quarantine(tmp_path: Path) -> None:
    """A client that wants the former name, too, may begin after it; one within is told of it."""
    root = unpack_landing(tmp_path)
    entries = _quarantine(rechained.read(root), is_over=False)
    last = entries[-1]
    rechained.write(root, [*entries, _whole_again("renamed", 8, last)])
    assert "orders do not land" in _begins(root, "orders")
    rechained.write(root, [*entries, _whole_again("renamed", 1, last)])
    assert _begins(root, "orders") == ""
    with pytest.raises(ServeError, match="orders do not land") as caught:
        LandingReader(root).check_start(ReadPosition(AT + 1, 1, 0))
    assert caught.value.hint is not None
    assert f"entry {len(entries)}" in caught.value.hint


def test_a_snapshot_of_another_table_ends_the_former_name_alone(tmp_path: Path) -> None:
    """The table in quarantine and another one exchanged their names; then both were in quarantine."""
    root = unpack_landing(tmp_path)
    entries = _quarantine(rechained.read(root), is_over=False)
    last = entries[-1]
    held = Quarantine("public.renamed", "public", "renamed", 1, Lsn(_lsn(last)), "out of range")
    moved = rechained.note(last, EntryKind.QUARANTINE, held.to_extra())
    healthy = _whole_again("orders", 8, last)
    rechained.write(root, [*entries, moved, healthy])
    assert _begins(root, "orders") == ""
    assert "renamed do not land" in _begins(root, "renamed")
    own = _whole_again("renamed", 1, last)
    rechained.write(root, [*entries, moved, healthy, own])
    assert _begins(root, "orders") == _begins(root, "renamed") == ""
    other = Quarantine("public.orders", "public", "orders", 8, Lsn(_lsn(last)), "out of range")
    both = [*entries, moved, rechained.note(last, EntryKind.QUARANTINE, other.to_extra())]
    rechained.write(root, [*both, own])
    assert _begins(root, "renamed") == ""
    assert "orders do not land" in _begins(root, "orders")


def test_advance_passes_one_epoch_at_a_time(tmp_path: Path) -> None:
    """An LSN that a later epoch has too is of the slot's own, and after its end of the next one."""
    root = unpack_landing(tmp_path)
    entries = _epoch(rechained.read(root))
    low = _lsn(entries[2])
    last = rechained.moved(
        rechained.note(entries[-1], EntryKind.FORK, {"text": "again"}), epoch=1, lsn=low
    )
    rechained.write(root, [*entries, last])
    reader = LandingReader(root)
    start = reader.beginning()
    inside = _lsn(entries[AT - 2])
    assert reader.advanced(start, inside) == ReadPosition(AT - 1, 1, inside)
    end = reader.advanced(start, 1 << 63)
    assert end == ReadPosition(AT, 1, _lsn(entries[AT - 1])), "the end of its epoch, and no further"
    following = reader.advanced(end, 1 << 63)
    assert following == ReadPosition(len(entries), 2, _lsn(entries[-1]))
    assert reader.advanced(following, low) == ReadPosition(len(entries) + 1, 3, low)
    with pytest.raises(ServeError, match="epoch 3 begins after it"):
        reader.advanced(following, low - 1)
    with pytest.raises(ServeError, match="minimum is"):
        reader.advanced(ReadPosition(3, 1, low), low - 1)


def _expire(root: Path, first: int) -> None:
    """Remove what retention removes."""
    for entry in rechained.read(root)[:first]:
        for file in entry.files:
            (root / file.path).unlink()
        (root / "commits" / f"{entry.n:020d}.json").unlink()


def test_lost_slot(tmp_path: Path) -> None:
    """Retention took what the slot needs: the error names slot, entry, size and what to do, which works."""
    root = unpack_landing(tmp_path)
    _expire(root, AT)
    with Served(root, keep=5 << 20) as served:
        slot = served.add_slot("copy")
        slot.n = 3
        _, error = _until_error(Replication(served, "copy"))
        text = str(error)
        assert 'slot "copy" is lost' in text
        assert f"needs entry 3, and retention removed the entries before {AT}" in text
        assert "5,242,880 bytes" in text
        with served.connect() as session:
            with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="removed by"):
                session.execute("SELECT pg_replication_slot_advance('copy', '0/1')")
            session.execute("SELECT pg_drop_replication_slot('copy')")
            session.execute("SET gaussdecode.start_lsn = 'earliest'")
            session.execute("SELECT pg_create_logical_replication_slot('copy', 'test_decoding')")
        client = Replication(served, "copy")
        assert _ends(client.until(served.end_lsn()))
        client.close()


def test_retention_while_a_client_reads(tmp_path: Path) -> None:
    """Files and entries that go under a client that was sent the beginning: what it did not get is an error."""
    root = unpack_landing(tmp_path)
    entries = rechained.read(root)
    rechained.write(root, entries[:4])
    with Served(root) as served:
        served.add_slot("copy")
        client = Replication(served, "copy")
        client.until(_lsn(entries[3]))
        _expire(root, 4)
        rechained.append(root, entries[-1:], entries[-1].previous, len(entries))
        got, error = _until_error(client)
        assert got == []
        assert 'slot "copy" is lost' in str(error)
        assert "needs entry 4" in str(error)


@pytest.mark.parametrize(
    ("how", "table"),
    [("missing", "rows"), ("cut", "rows"), ("other rows", "rows"), ("missing", "transactions")],
)
def test_damaged_file(tmp_path: Path, how: str, table: str) -> None:
    """Of rows or of transactions: an error with the entry, after everything before it."""
    root = unpack_landing(tmp_path)
    entries = rechained.read(root)
    of = entries[AT]
    is_wanted = (lambda file: file.table == "gd_transactions") if table == "transactions" else (
        lambda file: not file.table.startswith("gd_")
    )  # fmt: skip
    file = next(file for file in of.files if is_wanted(file))
    path = root / file.path
    others = [
        other for entry in entries for other in entry.files
        if other.table == file.table and other.rows != file.rows and (root / other.path).exists()
    ]  # fmt: skip
    if how == "missing":
        path.unlink()
    else:
        raw = path.read_bytes() if how == "cut" else (root / others[0].path).read_bytes()
        path.write_bytes(raw[: len(raw) // 2] if how == "cut" else raw)
    with Served(root) as served:
        slot = served.add_slot("copy")
        got, error = _until_error(Replication(served, "copy"))
        assert got
        assert max(got) <= _lsn(entries[AT - 1])
        assert f"entry {AT} ({Lsn(_lsn(of))}) cannot be read" in str(error)
        assert "gaussdecode verify" in str(error)
        with served.connect() as session:
            with pytest.raises(psycopg.errors.DataCorrupted, match=f"entry {AT}"):
                session.execute("SELECT * FROM pg_logical_slot_peek_changes('copy', NULL, NULL)")
            session.execute("SELECT pg_replication_slot_advance('copy', %s)", [str(Lsn(_lsn(of)))])
        assert slot.n == AT + 1
        client = Replication(served, "copy")
        assert min(_ends(client.until(served.end_lsn()))) > _lsn(of)
        client.close()


def test_damaged_entry_and_shorter_log(tmp_path: Path) -> None:
    """An entry that cannot be read is named; a slot beyond the end of a restored landing does not wait in silence."""
    root = unpack_landing(tmp_path)
    path = root / "commits" / f"{AT:020d}.json"
    path.write_bytes(path.read_bytes()[:100])
    with Served(root) as served:
        served.add_slot("copy")
        with pytest.raises(ServeError, match=f"{AT:020d}.json") as caught:
            Replication(served, "copy")
        assert caught.value.sqlstate == "55000"
        ahead = served.add_slot("ahead")
        ahead.n = 1000
        with pytest.raises(ServeError, match="slot is at entry 1000"):
            Replication(served, "ahead")


def test_files_of_other_counts_are_refused(tmp_path: Path) -> None:
    """A file that is whole and is not the one that the entry names."""
    root = unpack_landing(tmp_path)
    entry = rechained.read(root)[AT]
    files = tuple(dataclasses.replace(file, rows=file.rows + 1) for file in entry.files)
    changed = dataclasses.replace(entry, files=files)
    with pytest.raises(ServeError, match=r"has .* rows, and the entry names") as caught:
        list(LandingReader(root).blocks(changed, ReadPosition(0, 0, 0)))
    assert isinstance(caught.value.__cause__, LandingError)
