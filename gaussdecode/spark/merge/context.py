"""What the parts of one apply share."""

import dataclasses

from gaussdecode.spark.log.landing import Landing
from gaussdecode.spark.merge.engine import Engine
from gaussdecode.spark.merge.options import Options, Progress, Summary
from gaussdecode.spark.target.database_version import DatabaseVersion
from gaussdecode.spark.target.state_file import TableVersion
from gaussdecode.spark.target.store import Target


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One apply, and what its tables are made with.

    Attributes:
        engine: runs the tasks.
        landing: read from here.
        store: the target.
        options: what is asked for.
        progress: called with a sentence for each step.
        before: version of the database that it starts from; None for none.
        token: in the name of each file that it writes.
        summary: its result, filled step by step.
    """

    engine: Engine
    landing: Landing
    store: Target
    options: Options
    progress: Progress
    before: DatabaseVersion | None
    token: str
    summary: Summary

    def has_history(self, version: TableVersion | None) -> bool:
        """Whether history is wanted now, or was wanted once for this table or for all."""
        before = self.before is not None and self.before.history
        has_had = version is not None and version.history_from is not None
        return self.options.history or has_had or (version is None and before)

    @property
    def with_vectors(self) -> bool:
        """Whether deletion vectors are wanted now, or were once."""
        return self.options.vectors or (self.before is not None and self.before.vectors)

    def changelog_by(self, version: TableVersion | None) -> str:
        """Partition column of the changelog; empty without one."""
        if version is not None and version.changelog_from is not None:
            return version.changelog_by
        before = "" if self.before is None or version is not None else self.before.changelog
        return self.options.changelog or before
