"""What a real openGauss 5.0.0 and 6.0.2 sent, from the bytes to the final rows.

Every stream that was recorded, parallel and serial, batched or not, with and without notices,
goes through the daemon's own stages and must give the server's own view of the changes, and
the rows that its tables held at the end.
"""

import itertools
import re
from collections.abc import Iterable
from typing import Final

import pytest
from kit import canon, landing, oracle, realstream
from kit.landing import Change, Landing
from kit.oracle import TableState
from kit.realstream import Row

from gaussdecode.cli import main
from gaussdecode.serve.outputs.gauss import GaussOutput
from gaussdecode.serve.reader import LandingReader

pytestmark = pytest.mark.integration
# What no stream of this server carries; see the README of the vectors.
NEVER_SENT = {("public", "t_unl"), ("public", "t_col"), ("public", "hist")}
AFTER_DDL = {("public", "t_alt"): "2", ("public", "t_new"): "1", ("public", "t_tr"): "5"}
TRUNCATED = {("public", "t_tr"): {"1", "2", "3", "4"}}
NO_IDENTITY = {("public", "t_nothing"), ("public", "t_nopk")}
_FIRST_LSN: Final = re.compile(rb"(?<=first_lsn: )[0-9A-F]+/[0-9A-F]+")
# The server's test_decoding gives rows of ustore a column "oid" of arbitrary content.
USTORE = {("public", "t_us"), ("public", "t_us2")}


@pytest.fixture(scope="module", params=[*realstream.STREAMS, *realstream.CAPTURES])
def name(request: pytest.FixtureRequest) -> str:
    """Each recording in turn."""
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def landed(name: str, tmp_path_factory: pytest.TempPathFactory) -> Landing:
    """What the daemon's stages land of it."""
    folder = tmp_path_factory.mktemp("real")
    file = realstream.write_capture(name, folder)
    root = folder / "landing"
    decoders = "2" if name in realstream.CAPTURES else "1"
    assert main(["replay", str(file), "--root", str(root), "--decoders", decoders]) == 0
    return landing.read(root)


def _same(change: Change, row: Row) -> bool:
    """Whether a landed change is the one that the server shows."""
    if (change.schema.table, change.op) != (row.table, row.op) or change.xid not in {row.xid, None}:
        return False
    new, old = oracle.new_row(change), oracle.old_row(change) or {}
    return all(
        cells[name].agrees(text)
        for cells, texts in ((new, row.new), (old, row.old or {}))
        for name, text in texts.items()
        if name not in change.unchanged
    ) and (change.old is None) == (row.old is None)


def _sends_all(name: str) -> bool:
    """Whether a stream has TRUNCATE, and the rows that follow DDL in their transaction."""
    return name.startswith("6.0.2/serial")


def _is_lost(name: str, row: Row) -> bool:
    """Whether a row is one that the server's own view may have, and this stream has not."""
    lost = AFTER_DDL.get(row.table)
    return not _sends_all(name) and row.op == "I" and lost is not None and row.new["id"] == lost


def test_changes_are_the_servers_own(name: str, landed: Landing) -> None:
    """Change by change, in order, each style gives what the server's serial view has."""
    peeked = [
        row
        for row in realstream.peeked(realstream.version_of(name))
        if realstream.is_asked_for(name, row.table) and not _is_lost(name, row)
    ]
    changes = [change for change in landed.changes if change.op != "T"]
    assert len(changes) == len(peeked)
    for change, row in zip(changes, peeked, strict=True):
        assert _same(change, row), (change.order, row.table, row.op)
    assert [change.lsn for change in changes] == [row.lsn for row in peeked]


def test_changes_give_the_final_rows(name: str, landed: Landing) -> None:
    """Folded by key they are the tables, but for what is in no stream."""
    oracle.check_log(landed.entries)
    oracle.check_sums(landed)
    oracle.check_order(landed)
    is_test = name.endswith("serial-test_decoding")
    unread = NO_IDENTITY | USTORE if is_test else NO_IDENTITY
    kept = [change for change in landed.changes if change.schema.table not in unread]
    states = oracle.replay(kept)
    for table, rows in realstream.final_rows(name).items():
        if table in unread:
            continue
        if table in NEVER_SENT or not realstream.is_asked_for(name, table):
            assert table not in states
            continue
        lost, surplus = AFTER_DDL.get(table), TRUNCATED.get(table, set())
        if _sends_all(name):
            lost, surplus = None, set()
        expected = [row for row in rows if lost is None or row["id"] != lost]
        assert len(rows) - len(expected) == (lost is not None)
        oracle.compare(table, _without(states.get(table, TableState()), surplus), expected)


def _without(state: TableState, ids: set[str]) -> TableState:
    """A table without rows that a TRUNCATE took, which did not show; they must be there."""
    for number in ids:
        del state.keyed[canon.of_text(number, state.types["id"]),]
    return state


def test_rows_that_may_be_missing_are_suspect(name: str, landed: Landing) -> None:
    """Where the server was asked to warn, each transaction that lost rows is named."""
    named = {
        item["xid"]
        for entry in landed.entries
        if entry["kind"] == "suspect"
        for item in entry["extra"]["transactions"]
    }
    if not name.endswith("-notices") or _sends_all(name):
        assert named == set()
        return
    first = {("public", "t_alt"): 1, ("public", "t_tr"): 4}  # rows that came before the DDL
    held = {
        change.xid
        for change in landed.changes
        if change.op == "I" and first.get(change.schema.table) == change.new.get("id", first)
    }
    assert len(held) == len(first)
    assert held <= named


def test_folders_are_whole() -> None:
    """Thirteen streams of each server and three captures; no recording is passed over."""
    for version in realstream.VERSIONS:
        names = {name for name in realstream.STREAMS if name.startswith(f"{version}/")}
        assert {name.partition("/")[2] for name in names} == set(
            realstream.meta(version)["captures"]
        )
        assert len(names) == 13
    assert (len(realstream.CAPTURES), len(realstream.UPSERTS)) == (3, 4)


def _records(payloads: Iterable[bytes], letter: str, *, is_batched: bool) -> list[bytes]:
    """What the payloads hold, without LSNs, separators and transactions that are empty."""
    found: list[bytes] = []
    for payload in payloads:
        if letter != "b" and not is_batched:
            found.append(payload)
            continue
        at = 0
        while at < len(payload) and (size := int.from_bytes(payload[at : at + 4], "big")):
            found.append(payload[at + 12 : at + 4 + size])
            at += 4 + size + (letter == "b")
    return _whole([_FIRST_LSN.sub(b"", record) for record in found], letter)


def _whole(records: list[bytes], letter: str) -> list[bytes]:
    kept: list[bytes] = []
    begin, commit = (b"B", b"C") if letter == "b" else (b"BEGIN", b"COMMIT")
    for record in records:
        if record.upper().startswith(commit) and kept[-1].startswith(begin):
            kept.pop()
        elif letter == "b" and record.startswith(begin):
            kept.append(record[:9] + record[17:])  # without its first LSN
        else:
            kept.append(record)
    return kept


def test_what_landed_is_served_as_it_was_sent(
    name: str, landed: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The output of a landing has the records of the real server, byte for byte, with its own options.

    LSNs of changes aside, which a landing does not have, and transactions without rows.
    """
    if name in realstream.CAPTURES or name.endswith("serial-test_decoding"):
        return
    monkeypatch.setattr(LandingReader, "check", lambda *_: None)  # the streams name suspects
    style = realstream.style(name)
    options = {**realstream.options(name), "skip-empty-xacts": "true"}
    output = GaussOutput(
        "mppdb_decoding", options, begin_has_xid=realstream.version_of(name) != "5.0.0"
    )
    served: list[bytes] = []
    reader = LandingReader(landed.root)
    position = reader.beginning()
    for entry in reader.entries(position.n):
        for block in reader.blocks(entry, position):
            messages = output.write(block)
            starts = [0, *messages.ends.tolist()]
            served += [messages.content[a:b] for a, b in itertools.pairwise(starts)]
    sent = [
        body[25:]
        for letter, body in realstream.messages(realstream.unpacked(f"{name}.msgs"))
        if letter == b"d" and body[:1] == b"w"
    ]
    expected = _records(sent, style.letter, is_batched=style.is_batched)
    assert len(expected) > 4000
    assert _records(served, style.letter, is_batched=style.is_batched) == expected
