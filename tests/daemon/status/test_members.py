"""Tests for `gaussdecode.daemon.status.members`."""

from typing import Any

import pytest

from gaussdecode.daemon.status.members import COLUMNS, member_cells, member_line

QUIET: dict[str, Any] = {
    "name": "dn1",
    "slot": "s",
    "host": "h:1",
    "lag_bytes": 2_000_000,
    "lag_seconds": 3.0,
    "received_lsn": "0/2",
    "durable_lsn": "0/1",
    "confirmed_lsn": "0/0",
    "server_wal_end": "0/3",
    "waiting_transactions": 0,
    "watermark_csn": 7,
    "is_late": False,
    "held_seconds": 0.0,
    "held_by": [],
}
PREPARED = {"xid": 8, "pid": None}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, ""),
        ({"waiting_transactions": 1}, "; 1 transaction waits for its turn"),
        ({"waiting_transactions": 2}, "; 2 transactions wait for their turn"),
        (
            {"is_late": True, "held_seconds": 90.0},
            "; the mark has waited 90 s for its stream or answer",
        ),
        (
            {"is_late": True, "held_seconds": 9.0, "held_by": [{"xid": 5, "pid": 6}, PREPARED]},
            "; the mark has waited 9 s for transaction 5 of thread 6; transaction 8, prepared",
        ),
        (
            {"is_late": True, "held_seconds": 9.0, "held_by": [PREPARED] * 5},
            f"; the mark has waited 9 s for {'transaction 8, prepared; ' * 3}2 more",
        ),
    ],
)
def test_a_line_says_what_is_waited_for(changes: dict[str, Any], told: str) -> None:
    """After how far it is."""
    line = member_line({**QUIET, **changes})
    assert line == f"source dn1 (s at h:1): 2.0 MB, 3 s behind; durable 0/1, CSN 7{told}"


def test_a_row_has_a_cell_for_each_column() -> None:
    """Also where there is no CSN."""
    cells = member_cells({**QUIET, "watermark_csn": None})
    assert len(cells) == len(COLUMNS)
    assert cells[COLUMNS.index("CSN")] == "-"
