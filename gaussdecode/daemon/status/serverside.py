"""Show the guard's last reading of the server: as metrics, in ``/status``, and as a hint for the limit."""

import dataclasses
from typing import Any

from gaussdecode.daemon.guard import Guard
from gaussdecode.daemon.status.limit import ServerHint


def guard_values(guard: Guard | None) -> dict[str, float]:
    """Metrics from the guard's reading; unknown values are left out."""
    if guard is None or guard.outlook is None:
        return {}
    view = guard.outlook
    known: dict[str, float | None] = {
        "source_invalidation_seconds": view.invalidation_seconds,
        "land_full_seconds": view.full_seconds,
        "daemon_guard_step": guard.step,
        "daemon_guard_failures_total": guard.failures,
    }
    slot = view.look.slot
    if slot is not None:
        known |= {
            "source_retained_wal_bytes": slot.retained_bytes,
            "source_safe_wal_bytes": slot.safe_bytes,
            "source_slot_lost": float(slot.is_lost),
            "source_server_spilled_bytes_total": slot.spilled_bytes,
            "source_catalog_xmin_age_transactions": slot.catalog_xmin_age,
            "source_frozen_age_transactions": slot.frozen_age,
            "source_oldest_transaction_seconds": slot.transaction_seconds,
            "source_oldest_prepared_seconds": slot.prepared_seconds,
        }
    return {name: float(value) for name, value in known.items() if value is not None}


def _share(lengths: tuple[int, ...], queue_size: int) -> float | None:
    return sum(lengths) / (len(lengths) * queue_size) if lengths else None


def server_hint(guard: Guard | None, queue_size: int) -> ServerHint | None:
    """The server's hint for the limit; None before the first reading."""
    if guard is None or guard.outlook is None or guard.outlook.look.slot is None:
        return None
    slot = guard.outlook.look.slot
    return ServerHint(
        slot.wait_event,
        guard.outlook.spilled_rate,
        _share(slot.read_queues, queue_size),
        _share(slot.decode_queues, queue_size),
    )


def server_record(guard: Guard | None) -> dict[str, Any] | None:  # Any: JSON
    """The server's side of the slot, for ``/status``; None before the first reading."""
    if guard is None or guard.outlook is None:
        return None
    view = guard.outlook
    slot = view.look.slot
    return {
        "guard_step": guard.step.name.lower(),
        "invalidation_seconds": view.invalidation_seconds,
        "full_seconds": view.full_seconds,
        "free_bytes": view.look.free_bytes,
        "reason": guard.reason,
        "held_by": None if slot is None else slot.held_by,
        "slot": None if slot is None else dataclasses.asdict(slot),
    }
