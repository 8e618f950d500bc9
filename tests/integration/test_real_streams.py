"""What a real openGauss 5.0.0 sent, from the bytes to the final rows.

Every stream that was recorded, parallel and serial, batched or not, with and without notices,
goes through the daemon's own stages and must give the server's own view of the changes, and
the rows that its tables held at the end.
"""

import pytest
from kit import canon, landing, oracle, realstream
from kit.landing import Change, Landing
from kit.oracle import TableState
from kit.realstream import Row

from gaussdecode.cli import main

pytestmark = pytest.mark.integration
# What no stream of this server carries; see the README of the vectors.
NEVER_SENT = {("public", "t_unl"), ("public", "t_col"), ("public", "hist")}
AFTER_DDL = {("public", "t_alt"): "2", ("public", "t_new"): "1", ("public", "t_tr"): "5"}
TRUNCATED = {("public", "t_tr"): {"1", "2", "3", "4"}}
NO_IDENTITY = {("public", "t_nothing"), ("public", "t_nopk")}
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


def test_changes_are_the_servers_own(name: str, landed: Landing) -> None:
    """Change by change, in order, each style gives what the server's serial view has."""
    peeked = [row for row in realstream.peeked() if realstream.is_asked_for(name, row.table)]
    assert len(landed.changes) == len(peeked)
    for change, row in zip(landed.changes, peeked, strict=True):
        assert _same(change, row), (change.order, row.table, row.op)


def test_changes_give_the_final_rows(name: str, landed: Landing) -> None:
    """Folded by key they are the tables, but for what is in no stream."""
    oracle.check_log(landed.entries)
    oracle.check_sums(landed)
    oracle.check_order(landed)
    unread = NO_IDENTITY | USTORE if name == "serial-test_decoding" else NO_IDENTITY
    kept = [change for change in landed.changes if change.schema.table not in unread]
    states = oracle.replay(kept)
    for table, rows in realstream.final_rows().items():
        if table in unread:
            continue
        if table in NEVER_SENT or not realstream.is_asked_for(name, table):
            assert table not in states
            continue
        lost, surplus = AFTER_DDL.get(table), TRUNCATED.get(table, set())
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
    if not name.endswith("-notices"):
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


def test_folder_is_whole() -> None:
    """Thirteen streams and three captures; no recording is passed over."""
    assert len(realstream.STREAMS) == len(realstream.meta()["captures"]) == 13
    assert len(realstream.CAPTURES) == 3
    assert set(realstream.STREAMS) == set(realstream.meta()["captures"])
