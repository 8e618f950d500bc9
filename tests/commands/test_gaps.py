"""Tests for `gaussdecode.commands.gaps`."""

import dataclasses
import json
from pathlib import Path
from urllib.parse import unquote

import pytest

from gaussdecode.cli import main
from gaussdecode.errors import EX_IOERR, EX_OK
from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.entry_steps import Draft
from gaussdecode.land.files import Files
from gaussdecode.land.schemas import SchemaStore
from gaussdecode.land.snapshots import SnapshotStore
from gaussdecode.land.verify import verify
from gaussdecode.model.gap import Gap, GapReason
from gaussdecode.model.landing import (
    EntryKind,
    Position,
    SchemaChange,
    SourceIdentity,
    SourcePosition,
)
from gaussdecode.model.lsn import Lsn
from gaussdecode.model.quarantine import Quarantine
from gaussdecode.model.request import Reached
from gaussdecode.snapshot.doubts import answered

IDENTITY = SourceIdentity("postgresql", "7", "shop", "orders", "pgoutput")
GAP = Gap(GapReason.SLOT_LOST, Lsn(0x100), Lsn(0x900), is_open=True, text="slot 'orders' is lost")


@pytest.fixture
def log(tmp_path: Path) -> CommitLog:
    """A log with a genesis entry; blocks are small, so that old entries are in checkpoints."""
    root = tmp_path / "landing"
    root.mkdir(mode=0o750)
    opened = CommitLog.open(Files(root), IDENTITY, block=4)
    opened.commit(Draft(kind=EntryKind.GENESIS, position=SourcePosition(1, 1, 0x100)))
    return opened


def commit(log: CommitLog, kind: EntryKind, **extra: object) -> None:
    """Publish an entry at the same position."""
    log.commit(Draft(kind=kind, position=log.position, extra=extra))


def root_of(log: CommitLog, tmp_path: Path) -> str:
    """Let the landing go and name it."""
    log.close()
    return str(tmp_path / "landing")


def test_nothing_missing(
    log: CommitLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A whole log ends with 0 and says so."""
    assert main(["gaps", root_of(log, tmp_path)]) == EX_OK
    assert capsys.readouterr().out == "nothing is missing\n"


def test_gaps_and_suspects_are_listed(
    log: CommitLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With positions and tables, also those that are only in a checkpoint; verify agrees."""
    commit(log, EntryKind.GAP, **GAP.to_extra())
    for _ in range(9):
        commit(log, EntryKind.IDLE)
    commit(log, EntryKind.SUSPECT, tables=["public.a%20b"], text="may be incomplete")
    root = root_of(log, tmp_path)
    assert main(["gaps", root]) == EX_IOERR
    _, _, gap, suspect = capsys.readouterr().out.splitlines()
    assert [cell.strip() for cell in gap.split(" | ")][3:] == [
        "0/100", "0/900 and on", "all", "-", "slot 'orders' is lost",
    ]  # fmt: skip
    assert [cell.strip() for cell in suspect.split(" | ")][5:] == [
        "public.a b",
        "not yet: others that may be meant",
        "may be incomplete",
    ]
    assert main(["gaps", "--json", root]) == EX_IOERR
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["entry"], first["reason"], first["is_open"]) == (1, "slot_lost", True)
    assert (second["kind"], second["from_lsn"]) == ("suspect", "0/100")
    assert verify(Path(root)).is_clean


def test_accepted_gaps_can_be_left_out(
    log: CommitLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For scripts that call somebody: what was looked at is not told again, a new gap is."""
    commit(log, EntryKind.GAP, **GAP.to_extra())
    accepted = dataclasses.replace(GAP, until_lsn=Lsn(0xA00), is_open=False, is_accepted=True)
    behind = SourcePosition(2, 1, 0xA00)
    log.commit(Draft(kind=EntryKind.GAP, position=behind, extra=accepted.to_extra()))
    root = str(tmp_path / "landing")
    assert main(["gaps", "--unaccepted", root]) == EX_OK
    assert main(["gaps", "--json", root]) == EX_IOERR
    *_, last = map(json.loads, capsys.readouterr().out.splitlines()[1:])
    assert (last["is_accepted"], last["epoch"], last["until_lsn"]) == (True, 2, "0/A00")
    later = dataclasses.replace(GAP, from_lsn=Lsn(0xA00))
    commit(log, EntryKind.GAP, **later.to_extra())
    root = root_of(log, tmp_path)
    assert main(["gaps", "--unaccepted", "--json", root]) == EX_IOERR
    (only,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert only["from_lsn"] == "0/A00"
    assert verify(Path(root)).is_clean


def test_a_quarantine_ends_with_a_snapshot_of_the_whole_table(
    log: CommitLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not with rows that a condition chose, and not with another table."""
    table = "public.a%20b"
    stopped = Quarantine(table, "public", "a b", 7, Lsn(0x100), "a row is damaged")
    commit(log, EntryKind.QUARANTINE, **stopped.to_extra())

    def land(name: str, where: str | None) -> None:
        said = {"epoch": 1, "lsn": 0x200, "tables": {name: {"where": where}}}
        commit(log, EntryKind.SNAPSHOT, snapshot=said)

    def seen() -> tuple[int, bool, str | None]:
        status = main(["gaps", "--unaccepted", str(tmp_path / "landing")])
        capsys.readouterr()
        assert main(["gaps", "--json", str(tmp_path / "landing")]) == EX_IOERR
        (record,) = map(json.loads, capsys.readouterr().out.splitlines())
        return status, record["is_open"], record["until_lsn"]

    assert seen() == (EX_IOERR, True, None)
    land(table, "id > 3")
    land("public.other", None)
    assert seen() == (EX_IOERR, True, None)
    land(table, None)
    assert seen() == (EX_OK, False, "0/200")
    log.close()


def test_a_renamed_table_is_whole_with_a_snapshot_under_its_name_of_now(
    log: CommitLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of its OID, all rows, and not one that only says that the former name is gone."""
    stopped = Quarantine("public.a", "public", "a", 7, Lsn(0x100), "a row is damaged")
    commit(log, EntryKind.QUARANTINE, **stopped.to_extra())
    changes = {"public.a": {"text": "t", "oid": None, "comes_whole": False, "table_oid": 7}}
    said = {"tables": ["public.a"], "is_any_table": False, "text": "t", "changes": changes}
    commit(log, EntryKind.SUSPECT, **said)
    n = log.next_n - 1

    def unanswered(**of: object) -> int:
        record = {"where": None, "since_n": n, "oid": 7, **of}
        snapshot = {"epoch": 1, "lsn": 0x200, "tables": {"public.b": record}}
        commit(log, EntryKind.SNAPSHOT, snapshot=snapshot)
        main(["gaps", "--json", "--unaccepted", str(tmp_path / "landing")])
        return len(capsys.readouterr().out.splitlines())

    assert unanswered(where="id > 3") == unanswered(oid=8) == unanswered(dropped=True) == 2
    assert unanswered(since_n=n - 1) == 1
    assert unanswered() == 0
    log.close()


def test_a_snapshot_of_another_table_ends_the_former_name_alone(
    log: CommitLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The daemon has said that the table stands still under its name of now."""

    def unanswered(*names: str, **snapshots: int) -> list[str]:
        for name in names:
            of = Quarantine(f"public.{name}", "public", name, 7, Lsn(0x100), "a row is damaged")
            commit(log, EntryKind.QUARANTINE, **of.to_extra())
        for name, oid in snapshots.items():
            record = {"where": None, "since_n": log.next_n - 1, "oid": oid}
            said = {"epoch": 1, "lsn": 0x200, "tables": {f"public.{name}": record}}
            commit(log, EntryKind.SNAPSHOT, snapshot=said)
        main(["gaps", "--json", "--unaccepted", str(tmp_path / "landing")])
        lines = capsys.readouterr().out.splitlines()
        return [table for line in lines for table in json.loads(line)["tables"]]

    assert unanswered("a", "b", a=8) == ["public.b"]
    assert unanswered("b") == ["public.b", "public.b"]  # said again after a kill
    assert unanswered("c", b=8) == ["public.c"]
    assert unanswered("d", c=8, d=7) == []
    log.close()


def test_an_oid_of_another_epoch_is_another_table(
    log: CommitLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A restore may give it to any: neither a quarantine ends by it, nor a doubt."""
    stopped = Quarantine("public.a", "public", "a", 7, Lsn(0x100), "a row is damaged")
    commit(log, EntryKind.QUARANTINE, **stopped.to_extra())
    changes = {"public.a": {"text": "t", "oid": None, "comes_whole": False, "table_oid": 7}}
    said = {"tables": ["public.a"], "is_any_table": False, "text": "t", "changes": changes}
    commit(log, EntryKind.SUSPECT, **said)
    record = {"where": None, "since_n": log.next_n - 1, "oid": 7}
    read = {"snapshot": {"epoch": 2, "lsn": 0x200, "tables": {"public.b": record}}}
    behind = SourcePosition(2, 1, 0x200)
    log.commit(Draft(kind=EntryKind.SNAPSHOT, position=behind, extra=read))
    assert main(["gaps", "--json", "--unaccepted", root_of(log, tmp_path)]) == EX_IOERR
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_suspect_of_one_of_several_is_answered_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A snapshot of another source has other rows; and the other source's tables are not meant."""
    root = tmp_path / "landing"
    root.mkdir(mode=0o750)
    others = {"west": dataclasses.replace(IDENTITY, system_identifier="8")}
    log = CommitLog.open(Files(root), IDENTITY, source="east", others=others)
    place = SourcePosition(1, 1, 0x100)
    reached = {"west": Reached(place, None)}
    log.commit(Draft(kind=EntryKind.GENESIS, position=place, others=reached))
    store = SnapshotStore(log.disk)
    store.prepare()
    store.of("west").note({"public.other": {"state": "done"}})

    def land(source: str, since_n: int) -> None:
        said = {"public.t": {"where": None, "since_n": since_n}}
        extra = {"snapshot": {"epoch": 1, "lsn": 0x200, "tables": said}, "source": source}
        log.commit(Draft(kind=EntryKind.SNAPSHOT, extra=extra))
        store.of(source).note({"public.t": {"state": "done"}, **answered(since_n)})

    def unanswered() -> list[list[str]]:
        main(["gaps", "--json", "--unaccepted", str(root)])
        found = map(json.loads, capsys.readouterr().out.splitlines())
        return [of["not_read_again"] for of in found]

    for is_any in (True, False):
        said = {"tables": ["public.t"], "is_any_table": is_any, "source": "east"}
        log.commit(Draft(kind=EntryKind.SUSPECT, extra=said))
    store.of("east").note({"public.t": {"state": "asked"}})
    land("west", 2)
    assert unanswered() == [["public.t"], ["public.t"]]
    land("east", 2)
    assert unanswered() == []
    log.close()


def test_what_suspects_mean_is_whole_again_once_it_was_read_after_them(
    log: CommitLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a view from after the entry, all rows, and every table that may be meant."""
    store = SnapshotStore(log.disk)
    store.prepare()

    def land(since_n: int, *tables: str, where: str | None = None) -> int:
        said = {name: {"where": where, "since_n": since_n} for name in tables}
        commit(log, EntryKind.SNAPSHOT, snapshot={"epoch": 1, "lsn": 0x200, "tables": said})
        store.note({unquote(name): {"state": "done", "n": log.next_n - 1} for name in tables})
        return log.next_n - 1

    def seen() -> list[tuple[dict[str, int], list[str], bool]]:
        assert main(["gaps", "--json", str(tmp_path / "landing")]) == EX_IOERR
        found = map(json.loads, capsys.readouterr().out.splitlines())
        return [(of["read_again"], of["not_read_again"], of["is_read_again"]) for of in found]

    commit(log, EntryKind.SUSPECT, tables=["public.a%20b"], is_any_table=False, text="one")
    one = log.next_n - 1
    commit(log, EntryKind.SUSPECT, tables=[], is_any_table=True, text="any")
    any_ = log.next_n - 1
    land(any_, "public.a%20b", where="id > 3")
    land(one - 1, "public.a%20b", "public.c")
    assert seen() == [({}, ["public.a b"], False), ({}, ["public.a b", "public.c"], False)]

    first = land(one, "public.a%20b")
    assert seen()[0] == ({"public.a b": first}, [], True)
    assert seen()[1] == ({}, ["public.a b", "public.c"], False)

    asked = {"state": "asked", "n": log.next_n - 1}
    store.note(
        {
            **answered(any_),
            "public.c": asked,
            "public.new": asked,
            "public.gone": {"state": "missed"},
        }
    )
    second = land(any_, "public.a%20b", "public.c")
    read = {"public.a b": second, "public.c": second}
    assert seen()[1] == (read, ["public.new"], False)
    assert main(["gaps", "--unaccepted", str(tmp_path / "landing")]) == EX_IOERR
    (line,) = capsys.readouterr().out.splitlines()[2:]
    assert f"public.a b, public.c by entry {second}; not yet: public.new" in line

    third = land(any_, "public.new")
    assert seen()[1] == ({**read, "public.new": third}, [], True)
    assert main(["gaps", "--unaccepted", str(tmp_path / "landing")]) == EX_OK
    assert capsys.readouterr().out == "nothing is missing\n"
    log.close()


def test_a_table_that_was_made_anew_is_whole_with_rows_of_the_new_one(
    log: CommitLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A snapshot of it, whenever that was begun; its changes alone only where all its rows come as such."""

    def said(oid: int, *, comes_whole: bool) -> dict[str, object]:
        return {"text": "it was dropped and made anew", "oid": oid, "comes_whole": comes_whole}

    changes = {"public.a": said(8, comes_whole=True), "public.b": said(9, comes_whole=False)}
    tables = sorted(changes)
    commit(log, EntryKind.SUSPECT, tables=tables, is_any_table=False, text="t", changes=changes)

    def seen() -> tuple[dict[str, int], list[str]]:
        assert main(["gaps", "--json", str(tmp_path / "landing")]) == EX_IOERR
        (found,) = map(json.loads, capsys.readouterr().out.splitlines())
        return found["read_again"], found["not_read_again"]

    schemas = SchemaStore(log)
    read: dict[str, int] = {}
    for table, oid in (("public.a", 7), ("public.b", 9), ("public.a", 8)):
        assert seen() == (read, ["public.a", "public.b"])
        schema_id, _ = schemas.schema_id_for(table, {"oid": oid, "columns": []})
        change = SchemaChange(table, Position(0x100, 0), schema_id, None)
        pending = schemas.take_pending()
        log.commit(Draft(kind=EntryKind.DATA, schema_changes=(change,), schemas=pending))
    read = {"public.a": log.next_n - 1}
    assert seen() == (read, ["public.b"])
    snapshot = {"public.b": {"where": None, "since_n": -1, "oid": 9}}
    commit(log, EntryKind.SNAPSHOT, snapshot={"epoch": 1, "lsn": 0x200, "tables": snapshot})
    assert seen() == ({**read, "public.b": log.next_n - 1}, [])
    log.close()


def test_our_own_tables_are_never_to_be_read_again(
    log: CommitLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A suspect entry may mean every table that landed; the server has no gd_transactions."""
    schemas = SchemaStore(log)
    changes = []
    for table in ("public.a", "gd_transactions", "gd_messages"):
        schema_id, _ = schemas.schema_id_for(table, {"oid": 0, "columns": []})
        changes.append(SchemaChange(table, Position(0x100, 0), schema_id, None))
    pending = schemas.take_pending()
    log.commit(Draft(kind=EntryKind.DATA, schema_changes=tuple(changes), schemas=pending))
    commit(log, EntryKind.SUSPECT, tables=[], is_any_table=True, text="any")
    assert main(["gaps", "--json", root_of(log, tmp_path)]) == EX_IOERR
    (found,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert found["not_read_again"] == ["public.a"]


def test_any_table_may_be_meant_where_not_all_were_asked_for(
    log: CommitLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that never landed anything is in no list, so that single snapshots answer nothing."""
    commit(log, EntryKind.SUSPECT, tables=[], is_any_table=True, text="any")
    said = {"public.t": {"where": None, "since_n": log.next_n - 1}}
    commit(log, EntryKind.SNAPSHOT, snapshot={"epoch": 1, "lsn": 0x200, "tables": said})
    assert main(["gaps", "--unaccepted", root_of(log, tmp_path)]) == EX_IOERR
    out = capsys.readouterr().out
    assert "public.t by entry 2; not yet: others that may be meant" in out


def test_no_landing_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A directory without a log is not all well."""
    tmp_path.chmod(0o750)
    assert main(["gaps", str(tmp_path)]) == EX_IOERR
    assert "no landing" in capsys.readouterr().err


def test_several_sources_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An entry that says whose it is, and one that does not and has the place of each."""
    root = tmp_path / "landing"
    root.mkdir(mode=0o750)
    log = CommitLog.open(Files(root), IDENTITY, source="dn1", others={"dn2": IDENTITY})
    start, other = SourcePosition(1, 1, 0x100), SourcePosition(1, 1, 0x200)
    others = {"dn2": Reached(other, None)}
    log.commit(Draft(kind=EntryKind.GENESIS, position=start, others=others))
    log.commit(Draft(kind=EntryKind.SUSPECT, extra={"source": "dn2", "text": "perhaps"}))
    log.commit(Draft(kind=EntryKind.QUARANTINE, extra={"tables": ["public.a"], "text": "stopped"}))
    log.close()
    assert main(["gaps", str(root)]) == EX_IOERR
    _, _, *rows = capsys.readouterr().out.splitlines()
    assert [row.split(" | ")[3].strip() for row in rows] == ["dn2 0/200", "dn1 0/100, dn2 0/200"]
    assert main(["gaps", "--json", str(root)]) == EX_IOERR
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["source"], first["from_lsn"]) == ("dn2", "0/200")
    assert second["sources"] == {"dn1": "0/100", "dn2": "0/200"}
