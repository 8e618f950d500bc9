"""What a server counts, as metrics and as a document for `/status`.

The event loop writes the counters, and threads of the monitoring port read them. Each number is whole by itself.
"""

import collections
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from gaussdecode import __version__
from gaussdecode.metrics.metric import Labels
from gaussdecode.metrics.serve import REFUSALS
from gaussdecode.serve.kept import KeptSlot
from gaussdecode.serve.lags import Lag, Lags, slot_record
from gaussdecode.serve.slots import Slot
from gaussdecode.serve.stream import Sent

if TYPE_CHECKING:
    from gaussdecode.serve.server import Server

_TEMPORARY: Final = "(temporary)"  # no slot has this name


class Counts:
    """The counters of one server.

    Args:
        server: whose they are.
    """

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._started = time.time()
        landing = server.feeds.landing
        self._lags = Lags(
            lambda: (landing.first_n, landing.last_n),
            landing.entries,
            is_by_csn=landing.is_by_csn,
        )
        self._refused = collections.Counter(dict.fromkeys(REFUSALS, 0))
        self._sent: dict[str, Sent] = {}

    # ---- the event loop calls these ----------------------------------------------------------

    def refuse(self, reason: str) -> None:
        """Count a connection that was refused, for one of `REFUSALS`."""
        self._refused[reason] += 1

    def of(self, slot: Slot) -> Sent:
        """What streams of a slot count; temporary slots share one: drivers make up new names again and again."""
        return self._sent.setdefault(_TEMPORARY if slot.is_temporary else slot.name, Sent())

    def forget(self, name: str) -> None:
        """Forget a slot that was dropped."""
        self._sent.pop(name, None)

    # ---- threads call these ------------------------------------------------------------------

    def metrics(self) -> dict[str, dict[Labels, float]]:
        """All metrics, for `metrics.Exposition`."""
        slots, lags, sent = self._look()
        values: dict[str, dict[Labels, float]] = {
            "serve_confirmed_lsn": {(slot.name,): slot.lsn for slot in slots},
            "serve_behind_bytes": {(name,): lag.bytes for name, lag in lags.items()},
            "serve_behind_seconds": {(name,): lag.seconds for name, lag in lags.items()},
            "serve_slot_lost": {(name,): float(lag.is_lost) for name, lag in lags.items()},
            "serve_connected": {(slot.name,): float(bool(slot.is_connected)) for slot in slots},
            "serve_rows_total": {(name,): of.rows for name, of in sent.items()},
            "serve_sent_bytes_total": {(name,): of.bytes for name, of in sent.items()},
            "serve_waited_seconds_total": {(name,): of.waited_seconds for name, of in sent.items()},
            "serve_clients": {(): len(self._server.sessions)},
            "serve_clients_limit": {(): self._server.settings.connections},
            "serve_refused_total": {(reason,): n for reason, n in self._refused.items()},
            "serve_start_time_seconds": {(): self._started},
        }
        return {f"gaussdecode_{name}": series for name, series in values.items()}

    def status(self) -> dict[str, Any]:  # Any: JSON
        """The document of ``/status``."""
        slots, lags, sent = self._look()
        records = []
        for slot in slots:
            of = sent[slot.name]
            counted = {
                "rows": of.rows,
                "bytes": of.bytes,
                "waited_seconds": round(of.waited_seconds, 3),
            }
            records.append({**slot_record(slot, lags[slot.name]), **counted})
        return {
            "state": "serving",
            "root": str(self._server.root),
            "database": ", ".join(self._server.databases),
            "listen": str(self._server.settings.listen),
            "pid": os.getpid(),
            "uptime_seconds": round(max(0.0, time.time() - self._started), 1),
            "clients": len(self._server.sessions),
            "refused": dict(self._refused),
            "virtual_slots": records,
            "version": __version__,
        }

    def _look(self) -> tuple[list[KeptSlot], Mapping[str, Lag], Mapping[str, Sent]]:
        """Slots that are kept, how far they are behind, and what was sent."""
        slots = [
            KeptSlot(
                of.name, of.n, of.epoch, of.lsn, of.plugin, of.owner, of.is_active, of.database
            )
            for of in self._server.slots
            if not of.is_temporary
        ]
        sent = {**{slot.name: Sent() for slot in slots}, **self._sent}
        return slots, self._lags.look(slots), sent
