"""What ``/status`` says and ``gaussdecode status`` prints.

Made from the same snapshot as the metrics, in the columns of GaussDB's
gs_get_parallel_decode_status() and some more. Pure; it asks nobody.
"""

from typing import Final

from gaussdecode.metrics import Snapshot
from gaussdecode.model.lsn import Lsn

_READ_QUEUE: Final = "gaussdecode_read_change_queue_length"
_DECODE_QUEUE: Final = "gaussdecode_decode_change_queue_length"


def queue_text(lengths: list[int]) -> str:
    """Spell queue lengths as the server does: ``queue0: 3, queue1: 0``."""
    return ", ".join(f"queue{index}: {length}" for index, length in enumerate(lengths))


def _lengths(snapshot: Snapshot, name: str) -> list[int]:
    series = snapshot.get(name, {})
    return [int(value) for _, value in sorted(series.items(), key=lambda item: int(item[0][0]))]


def _number(snapshot: Snapshot, name: str) -> float | None:
    return snapshot.get(f"gaussdecode_{name}", {}).get(())


def _lsn(snapshot: Snapshot, name: str) -> str | None:
    value = _number(snapshot, name)
    return None if value is None else str(Lsn(int(value)))


def _integer(snapshot: Snapshot, name: str) -> int | None:
    value = _number(snapshot, name)
    return None if value is None else int(value)


def status_record(
    *, slot: str, decoder_count: int, state: str, detail: str | None, snapshot: Snapshot
) -> dict[str, object]:
    """Make one row.

    Args:
        slot: name of the slot.
        decoder_count: parallel-decode-num.
        state: one word, such as ``streaming``, ``connecting``, ``waiting for disk``.
        detail: why, when something is wrong.
        snapshot: as given to the metrics.

    Returns:
        Fields fit for JSON; positions as text, numbers that are not known as None.
    """
    return {
        "slot_name": slot,
        "parallel_decode_num": decoder_count,
        "read_change_queue_length": queue_text(_lengths(snapshot, _READ_QUEUE)),
        "decode_change_queue_length": queue_text(_lengths(snapshot, _DECODE_QUEUE)),
        "reader_lsn": _lsn(snapshot, "source_received_lsn"),
        "working_txn_cnt": _integer(snapshot, "collect_open_transactions"),
        "working_txn_memory": _integer(snapshot, "collect_open_bytes"),
        "server_wal_end": _lsn(snapshot, "source_server_wal_end_lsn"),
        "durable_lsn": _lsn(snapshot, "land_durable_lsn"),
        "confirmed_lsn": _lsn(snapshot, "source_confirmed_lsn"),
        "lag_bytes": _integer(snapshot, "source_lag_bytes"),
        "lag_seconds": _number(snapshot, "source_lag_seconds"),
        "entry": _integer(snapshot, "land_entry"),
        "state": state,
        "detail": detail,
    }
