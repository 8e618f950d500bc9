"""Decide what a DDL command does to a table of a target: ``--on-ddl KIND=ACTION,...``.

================ ===================================================================================
kind             is
================ ===================================================================================
``add-column``   a new column
``drop-column``  a column that is gone
``rename``       a column with another name
``retype``       a column with another type
``comment``      the comment of the table or of a column
``rename-table`` the table has another name or schema, see `routes`
``drop-table``   the table is gone
================ ===================================================================================

``apply`` changes the table in the commit that has the command's entry. ``stop`` stops the table before
that entry. ``ignore`` leaves it to the next rows, as in a landing without DDL.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from gaussdecode.errors import ConfigError
from gaussdecode.spark.log.ddl import DdlEvent
from gaussdecode.spark.log.ddl_schema import COLUMN_KINDS, changes_between, follow, renamed
from gaussdecode.spark.log.schema import TableSchema

COMMENT: Final = "comment"
RENAME_TABLE: Final = "rename-table"
DROP_TABLE: Final = "drop-table"
APPLY: Final = "apply"
STOP: Final = "stop"
IGNORE: Final = "ignore"
ACTIONS: Final = (APPLY, STOP, IGNORE)
Policy = Mapping[str, str]
"""Action by kind."""
DEFAULT: Final[Policy] = MappingProxyType(
    {**dict.fromkeys((*COLUMN_KINDS, COMMENT), APPLY), RENAME_TABLE: IGNORE, DROP_TABLE: IGNORE}
)
Comment = tuple[int | None, str]
"""Attribute number of a column, None for the table, and its comment; empty for none."""


def read_on_ddl(texts: Sequence[str]) -> dict[str, str]:
    """Read the option, which may be given again: ``KIND=ACTION,...``, or one ACTION for all kinds.

    ``apply`` for all kinds leaves ``rename-table`` out: it moves tables between names, and is asked for by its own.

    Raises:
        ConfigError: an option has the wrong form.
    """
    found: dict[str, str] = {}
    for part in (part.strip() for text in texts for part in text.split(",")):
        kind, is_given, action = part.partition("=")
        if is_given:
            found[kind] = action
        else:
            found |= {kind: part for kind in DEFAULT if (kind, part) != (RENAME_TABLE, APPLY)}
    policy_of(found)
    return found


def policy_of(asked: Policy | None) -> Policy:
    """The action of each kind; those that are not asked for have their default.

    Raises:
        ConfigError: a kind or an action does not exist.
    """
    for kind, action in (asked or {}).items():
        if kind not in DEFAULT:
            raise ConfigError(f"--on-ddl {kind}={action}: a kind is one of {', '.join(DEFAULT)}")
        if action not in ACTIONS:
            raise ConfigError(f"--on-ddl {kind}={action}: an action is one of {', '.join(ACTIONS)}")
    return {**DEFAULT, **(asked or {})}


@dataclasses.dataclass(frozen=True, slots=True)
class OnDdl:
    """The DDL commands of a plan, and what they do.

    Attributes:
        events: commands in order.
        policy: action of each kind.
    """

    events: Sequence[DdlEvent] = ()
    policy: Policy = dataclasses.field(default_factory=lambda: DEFAULT)

    def of(self, schema: TableSchema | None) -> bool:
        """Whether a command is about a table."""
        return schema is not None and any(event.oid == schema.oid for event in self.events)


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """What a command does to a table.

    Attributes:
        stopped: kinds that stop the table; empty for none.
        why: why it stops, or why its columns wait for the next rows; empty for neither.
        schema: schema of the table from here on; None if it stays.
        comment: comment that the table or a column gets; None for none.
        empties: whether the table has no rows from here on.
    """

    stopped: tuple[str, ...] = ()
    why: str = ""
    schema: TableSchema | None = None
    comment: Comment | None = None
    empties: bool = False


def decide(before: TableSchema, event: DdlEvent, policy: Policy) -> Decision:
    """Decide what a command does to a table that has a schema before it.

    Args:
        before: schema of the table's rows.
        event: a command.
        policy: action of each kind.
    """
    if not before.oid or event.oid != before.oid:
        return Decision()
    if event.is_dropped:
        return _whole(event, policy, DROP_TABLE, f"{before.title} was dropped")
    if event.title == before.title:
        return _decide_columns(before, event, policy)
    if policy[RENAME_TABLE] != APPLY or event.schema is None or event.name is None:
        return _whole(event, policy, RENAME_TABLE, f"{before.title} is {event.title}")
    moved = renamed(before, event.schema, event.name)
    found = _decide_columns(moved, event, policy)
    return found if found.stopped else dataclasses.replace(found, schema=found.schema or moved)


def _decide_columns(before: TableSchema, event: DdlEvent, policy: Policy) -> Decision:
    """Decide what a command does to the columns of a table, and to comments."""
    if event.command_tag == "COMMENT":
        return _commented(before, event, policy)
    found = follow(before, event)
    stopped = tuple(kind for kind in found.changes if policy[kind] == STOP)
    if stopped:
        return Decision(stopped, _stop_text(event.told, found.changes, stopped))
    ignored = [kind for kind in found.changes if policy[kind] == IGNORE]
    if ignored:
        return Decision(why=f"--on-ddl {ignored[0]}=ignore")
    return Decision(schema=found.schema, why=found.why or "")


def why_stopped(
    before: TableSchema, after: TableSchema, policy: Policy, where: str
) -> tuple[tuple[str, ...], str]:
    """Kinds that stop a table whose next rows have another schema, and the reason.

    Args:
        before: schema of the rows before.
        after: schema of the next rows of the same table; their columns can be matched.
        policy: action of each kind.
        where: where these rows are, for the reason.
    """
    if before.schema_id == after.schema_id or STOP not in policy.values():
        return (), ""
    changes = changes_between(before, after)
    stopped = tuple(kind for kind in changes if policy[kind] == STOP)
    return stopped, _stop_text(where, changes, stopped) if stopped else ""


def _whole(event: DdlEvent, policy: Policy, kind: str, what: str) -> Decision:
    if policy[kind] == STOP:
        return Decision((kind,), _stop_text(event.told, {kind: what}, (kind,)))
    return Decision(empties=kind == DROP_TABLE and policy[kind] == APPLY)


def _commented(before: TableSchema, event: DdlEvent, policy: Policy) -> Decision:
    if policy[COMMENT] == STOP:
        return Decision((COMMENT,), _stop_text(event.told, {COMMENT: before.title}, (COMMENT,)))
    if policy[COMMENT] == IGNORE:
        return Decision()
    comment = event.comment
    if comment is None:
        return Decision(why="its statement does not tell the comment alone")
    name, text = comment
    if name is None:
        return Decision(comment=(None, text))
    number = next((c.number for c in before.columns if c.true_name == name), None)
    if number is None:
        return Decision(why=f"the rows have no column {name} yet, or its number is not known")
    return Decision(comment=(number, text))


def _stop_text(where: str, changes: Mapping[str, str], stopped: Sequence[str]) -> str:
    told = "; ".join(f"{kind}: {names}" for kind, names in changes.items())
    options = ",".join(f"{kind}={STOP}" for kind in stopped)
    other = ",".join(f"{kind}={APPLY}" for kind in stopped)
    return f"{where} ({told}), and --on-ddl {options}. To go on, apply once with --on-ddl {other}"
