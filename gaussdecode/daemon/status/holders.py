"""Name the causes that keep a slot's WAL on the server, by `SlotView.held_by`, and how to find each there."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from gaussdecode.daemon.status.text import span


@dataclasses.dataclass(frozen=True, slots=True)
class Holder:
    """One kind.

    Attributes:
        name: name in a sentence.
        age: field of the server's view with its age in seconds; None where it has none.
        query: names it on the server; empty where there is nothing to look for.
    """

    name: str
    age: str | None = None
    query: str = ""

    def told(self, slot: Mapping[str, Any]) -> str:  # Any: JSON
        """Its name, and for how long it has been open."""
        seconds = None if self.age is None else slot.get(self.age)
        return (
            self.name if seconds is None else f"{self.name} that has been open for {span(seconds)}"
        )


HOLDERS: Final[Mapping[str, Holder]] = MappingProxyType(
    {
        "landing": Holder("changes that have not landed yet"),
        "checkpoint": Holder("the server's next record of running transactions"),
        "transaction": Holder(
            "a transaction",
            "transaction_seconds",
            "SELECT pid, usename, xact_start, query FROM pg_stat_activity ORDER BY xact_start LIMIT 5;",
        ),
        "prepared": Holder(
            "a prepared transaction",
            "prepared_seconds",
            "SELECT gid, prepared, owner FROM pg_prepared_xacts ORDER BY prepared LIMIT 5;",
        ),
    }
)
