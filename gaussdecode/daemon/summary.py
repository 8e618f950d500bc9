"""Log one summary line per minute in which something landed."""

from collections.abc import Mapping
from typing import Final

from gaussdecode.daemon.status.landed import Landed
from gaussdecode.logs import Event, get_logger
from gaussdecode.model.lsn import Lsn

_SECONDS: Final = 60.0
_log = get_logger("daemon")


class Summary:
    """Says what landed since the line before; each publication by itself is a line for debugging.

    Args:
        landed: counts since the start.
        now: monotonic seconds.
    """

    def __init__(self, landed: Landed, now: float) -> None:
        self._landed = landed
        self._at = now
        self._told: Mapping[str, float] = landed.totals()

    def tell(self, now: float, lag: Mapping[str, float | None], *, is_last: bool = False) -> None:
        """Write the line when it is time, or at the end.

        Args:
            now: monotonic seconds.
            lag: lag in bytes and seconds, by their names; None for not known.
            is_last: nothing comes after it.
        """
        if now - self._at < _SECONDS and not is_last:
            return
        totals = self._landed.totals()
        new = {name: int(totals[name] - self._told[name]) for name in totals}
        seconds, self._at, self._told = now - self._at, now, totals
        if not new["land_files_total"]:
            return
        durable = self._landed.durable
        _log.info(
            Event.MINUTE_LANDED,
            seconds=round(seconds, 1),
            entries=new["land_entries_total"],
            rows=new["land_rows_total"],
            bytes=new["land_bytes_total"],
            files=new["land_files_total"],
            entry=durable.entry,
            position=str(Lsn(durable.lsn)),
            lag_bytes=lag["lag_bytes"],
            lag_seconds=None if lag["lag_seconds"] is None else round(lag["lag_seconds"], 1),
        )
