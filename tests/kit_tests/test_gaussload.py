"""The load for benchmarks is a correct stream, however often its one cycle is sent."""

import itertools

from kit.gaussclient import Record, binary_records
from kit.gaussload import Load

HEADER = 5 + 25


def payloads(data: memoryview) -> list[bytes]:
    """The payloads of CopyData messages."""
    found, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at + 1 : at + 5])
        assert data[at] == ord("d")
        found.append(bytes(data[at + HEADER : at + 1 + size]))
        at += 1 + size
    return found


def test_cycles_make_one_stream() -> None:
    """Positions, CSNs and xids grow over the cycles; every transaction is whole."""
    load = Load(
        columns=12, row_bytes=300, transaction_rows=50, total_bytes=2_500_000, cycle_bytes=1
    )
    assert load.cycles > 1
    records: list[Record] = []
    for buffer in load.buffers():
        records += [record for payload in payloads(buffer) for record in binary_records(payload)]
    assert len(records) == load.cycles * (load.cycle_rows + 2 * load.cycle_transactions)
    assert all(a.lsn <= b.lsn for a, b in itertools.pairwise(records))
    begins = [record for record in records if record.kind == "B"]
    commits = [record for record in records if record.kind == "C"]
    assert [r.csn for r in begins] == list(range(begins[0].csn, begins[0].csn + len(begins)))
    assert [r.xid for r in begins] == [r.xid for r in commits]
    assert len({r.xid for r in begins}) == len(begins)
    assert commits[-1].lsn == load.wal_end
    assert begins[0].lsn > load.store.wal_end, "a slot that is made now would skip it"


def test_rows_have_the_size_asked_for() -> None:
    """Rows are as wide and as large as the scenario says."""
    load = Load(columns=30, row_bytes=800, transaction_rows=10, total_bytes=1, cycle_bytes=1)
    (buffer,) = load.buffers()
    rows = [r.new for p in payloads(buffer) for r in binary_records(p) if r.new]
    assert len(rows) == load.cycle_rows
    assert {len(row) for row in rows} == {30}
    sizes = [sum(len(value or "") for value in row.values()) for row in rows]
    assert 600 < sum(sizes) / len(sizes) < 850
    values = [value for row in rows for value in row.values()]
    assert None in values
    assert "" in values
    assert any("'" in (value or "") for value in values)
    assert any(not (value or "").isascii() for value in values)
