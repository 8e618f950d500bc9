"""Tell why a table stops before a file of it."""

import dataclasses
from typing import Final

from gaussdecode.spark.log.change_file import ChangeFile
from gaussdecode.spark.log.schema import TableSchema, is_same_table, why_inexact, why_unknown
from gaussdecode.spark.merge.on_ddl import Policy, why_stopped
from gaussdecode.spark.merge.plan import Doubt
from gaussdecode.spark.target.decided import Decided, Stop

UNTOLD: Final = (
    "rows of it were updated or deleted, and the stream does not say which, because the table has no "
    "replica identity. Give it a key or ALTER TABLE ... REPLICA IDENTITY FULL"
)
MIXED: Final = (
    "it was renamed there and back in one entry while its key changed, and which of its rows came last is "
    "not told. Snapshot it: gaussdecode snapshot"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """A file of a table, and what stands before it.

    Attributes:
        change: the file.
        schema: schema of its rows.
        before: schema of the rows before it; None where the table is empty or stopped there.
        doubt: the first suspect entry before the file that nothing has ended; None for none.
        decided: an operator's declarations about the columns.
        policy: what changes of columns do, by kind.
    """

    change: ChangeFile
    schema: TableSchema
    before: TableSchema | None
    doubt: Doubt | None
    decided: Decided
    policy: Policy

    @property
    def why_other_columns(self) -> str | None:
        """Why the rows before cannot continue under the schema of the file; None if they can."""
        before, schema = self.before, self.schema
        if before is None:
            return None
        why = why_unknown(before, schema) or why_inexact(before, schema)
        if why is not None or before.schema_id == schema.schema_id:
            return why
        is_said = not {before.schema_id, schema.schema_id}.isdisjoint(self.decided.numbers)
        is_known = (self.change.n, before.schema_id, schema.schema_id) in self.decided.changes
        if is_said and not is_known and is_same_table(before, schema):
            return "the declaration about its columns is for another schema change"
        return None

    def stop(self, why: str) -> Stop:
        """A stop before the entry of the file."""
        old = "" if self.before is None else self.before.schema_id
        return Stop(self.change.n - 1, old, self.schema.schema_id, why)


def _suspect(step: Step) -> Stop | None:
    """Rows before the file may be wrong."""
    if step.doubt is None:
        return None
    stop = step.stop(step.doubt.why)
    return dataclasses.replace(stop, n=step.doubt.n - 1, is_suspect=True)


def _untold(step: Step) -> Stop | None:
    """Rows change, and the stream does not say which.

    PostgreSQL refuses such changes of a published table; GaussDB sends them.
    """
    ops = step.change.file.ops
    has_changes = bool(ops.get("U") or ops.get("D"))
    is_told = any(column.identity for column in step.schema.columns)
    return step.stop(UNTOLD) if has_changes and not is_told else None


def _mixed(step: Step) -> Stop | None:
    """Files under several keys overlap."""
    return step.stop(MIXED) if step.change.is_mixed else None


def _other_columns(step: Step) -> Stop | None:
    """The rows before cannot continue, and the file does not bring all rows anew."""
    why = step.why_other_columns
    return None if why is None or step.change.is_snapshot else step.stop(why)


def _not_wanted(step: Step) -> Stop | None:
    """The columns change in a way that ``--on-ddl`` stops at."""
    before, schema, n = step.before, step.schema, step.change.n
    if before is None or not is_same_table(before, schema) or why_unknown(before, schema):
        return None
    where = f"the rows of entry {n} have other columns"
    kinds, why = why_stopped(before, schema, step.policy, where)
    return dataclasses.replace(step.stop(why), ddl=kinds) if kinds else None


_STOPS: Final = (_suspect, _untold, _mixed, _not_wanted, _other_columns)
"""Why a table stops before a file; the first that applies is told."""


def stop_before(step: Step) -> Stop | None:
    """The stop before a file; None if it can be applied."""
    return next((stop for rule in _STOPS if (stop := rule(step)) is not None), None)
