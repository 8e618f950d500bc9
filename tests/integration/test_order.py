"""The server's own plain-text plug-in on the same WAL gives the same rows in the same order."""

from collections.abc import Callable

import pytest
from kit import canon, oracle, testdecoding
from kit.daemon import Daemon
from kit.landing import Change
from kit.postgres import Database
from kit.testdecoding import PlainChange
from kit.workload import Workload

pytestmark = pytest.mark.integration
_BOOLEANS = {"true": "t", "false": "f"}


def _agrees(cell: oracle.Cell, text: str | None) -> bool:
    if cell.raw is None and isinstance(cell.value, bool):
        return canon.of_value(cell.value, cell.type) == _BOOLEANS.get(text or "")
    return cell.agrees(text)


def _compare(change: Change, plain: PlainChange) -> None:
    assert change.schema.table == plain.table
    assert change.op == plain.op
    assert change.unchanged <= plain.unchanged
    if plain.new is not None:
        new = oracle.new_row(change)
        for name, text in plain.new.items():
            assert _agrees(new[name], text), f"{plain.table}.{name}: {new[name]}, not {text!r}"
    old = oracle.old_row(change)
    if plain.op == "D" and plain.old is not None:
        assert old is not None
        for name, text in plain.old.items():
            assert _agrees(old[name], text), f"old {plain.table}.{name}: {old[name]}, not {text!r}"


@pytest.mark.parametrize("decoders", [1, 3])
def test_same_rows_in_the_same_order(
    database: Database, make_daemon: Callable[..., Daemon], decoders: int
) -> None:
    """Every change of test_decoding landed, at its place, with its values."""
    workload = Workload(database, 10 + decoders, sessions=4)
    workload.create()
    database.create_slot()
    plain_slot = f"{database.name}_plain"
    database.copy_slot(plain_slot, "test_decoding")
    config = {"decoding": {"parallel-decode-num": decoders}}
    with make_daemon(database, config=config) as daemon:
        workload.run(200)
        daemon.catch_up()
        assert daemon.stop() == 0
    landed = oracle.check(daemon.root, database)
    plain = list(testdecoding.take(database, plain_slot, oracle.OUTPUT_SETTINGS))
    assert len(landed.changes) == len(plain)
    for change, other in zip(landed.changes, plain, strict=True):
        _compare(change, other)
