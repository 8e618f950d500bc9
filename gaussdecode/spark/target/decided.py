"""Record stopped tables and an operator's declarations about columns, both kept in the target."""

import dataclasses
from collections.abc import Mapping

from gaussdecode.model.columns import DROPPED


@dataclasses.dataclass(frozen=True, slots=True)
class Stop:
    """A table is stopped before an entry: its columns or rows cannot be matched.

    Attributes:
        n: entry up to which it is complete.
        old: schema_id of its rows; empty if retention removed the missing changes.
        new: schema_id of the changes after them; empty if there are none.
        why: the reason, in a sentence.
        is_suspect: an entry says that the source changed rows without sending the changes.
        seen: schema_ids of the missing changes; None if not recorded.
        decided: number of an operator's declarations at that time.
        ddl: kinds of ``--on-ddl`` that stopped it; empty for another reason.
        held: directories in the landing of names that the table got later: its rows there wait too.
        home: OID and directory in the landing of a table that has no version yet.

    If several sources differ there is no version before: `old` is empty.
    """

    n: int
    old: str
    new: str
    why: str
    is_suspect: bool = False
    seen: tuple[str, ...] | None = None
    decided: int = 0
    ddl: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    home: tuple[int, str] | None = None

    def may_move(
        self, decided: "Decided", first_n: int, policy: Mapping[str, str], *, accept_suspects: bool
    ) -> bool:
        """Whether reading the missing changes again may end the stop, or give another reason.

        Args:
            decided: declarations by now.
            first_n: oldest entry that retention has left.
            policy: action of each kind of ``--on-ddl`` now.
            accept_suspects: see `make_plan`.
        """
        is_taken = self.n + 1 < first_n and bool(self.old or self.new)
        is_accepted = accept_suspects and self.is_suspect
        is_declared = self.seen is None or self.decided != len(decided.changes)
        return is_declared or is_taken or is_accepted or self.is_allowed(policy)

    def is_allowed(self, policy: Mapping[str, str]) -> bool:
        """Whether ``--on-ddl`` stopped it, and does not any more."""
        return bool(self.ddl) and all(policy[kind] != "stop" for kind in self.ddl)

    @property
    def is_gone(self) -> bool:
        """Whether the source dropped the table, so that its last changes can never be matched."""
        return self.why == DROPPED


@dataclasses.dataclass(frozen=True, slots=True)
class Decided:
    """Columns that an operator declared to be the same, since the schemas alone do not tell.

    Attributes:
        numbers: column numbers by schema_id and name in the files.
        changes: the schema changes declared so far: entry number, schema_id before and after.
    """

    numbers: Mapping[str, Mapping[str, int]] = dataclasses.field(default_factory=dict)
    changes: frozenset[tuple[int, str, str]] = frozenset()
