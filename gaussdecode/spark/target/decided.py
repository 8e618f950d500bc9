"""Tables that stand still, and what somebody has said of their columns; both are kept in the target."""

import dataclasses
from collections.abc import Mapping

from gaussdecode.model.columns import DROPPED


@dataclasses.dataclass(frozen=True, slots=True)
class Stop:
    """A table stands still before an entry: nobody knows which columns or rows are which.

    Attributes:
        n: complete up to this entry.
        old: schema_id of its rows; empty where retention has taken what it lacks.
        new: schema_id of the changes after it; empty where there are none.
        why: in a sentence.
        is_suspect: an entry says that the source changed its rows without a change in the stream.
        seen: schema_ids of the changes that it lacks; None where that was not noted.
        decided: how often somebody had said something of its columns.

    Where several sources differ there is no version before: `old` is empty.
    """

    n: int
    old: str
    new: str
    why: str
    is_suspect: bool = False
    seen: tuple[str, ...] | None = None
    decided: int = 0

    def may_move(self, decided: "Decided", first_n: int, *, accept_suspects: bool) -> bool:
        """Whether another look at the changes that it lacks may end it, or give another reason.

        Args:
            decided: what was said of its columns by now.
            first_n: the first entry that retention has left.
            accept_suspects: see `make_plan`.
        """
        is_taken = self.n + 1 < first_n and bool(self.old or self.new)
        is_accepted = accept_suspects and self.is_suspect
        return self.seen is None or self.decided != len(decided.changes) or is_taken or is_accepted

    @property
    def is_gone(self) -> bool:
        """Its last changes can never be told apart, for the source has the table no more."""
        return self.why == DROPPED


@dataclasses.dataclass(frozen=True, slots=True)
class Decided:
    """Which columns are which, as somebody said where nobody could know.

    Attributes:
        numbers: by schema_id and name in the files.
        changes: number of the entry, schema_id before and after it, of each change it was
            said of.
    """

    numbers: Mapping[str, Mapping[str, int]] = dataclasses.field(default_factory=dict)
    changes: frozenset[tuple[int, str, str]] = frozenset()
