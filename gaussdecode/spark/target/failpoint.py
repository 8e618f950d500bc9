"""Kill an apply job at a chosen step, for tests.

``GAUSSDECODE_SPARK_FAILPOINT`` is ``step[:count]``: at the count-th time (from 1) the step
is reached, the process is killed. Without the variable a step costs one look-up.
"""

import collections
import enum
import os
import signal
from typing import Final

VARIABLE: Final = "GAUSSDECODE_SPARK_FAILPOINT"


class Step(enum.StrEnum):
    """Steps of committing a version, in order."""

    FILES_WRITTEN = "files_written"
    FILES_DURABLE = "files_durable"
    MANIFEST_WRITTEN = "manifest_written"
    MANIFEST_LINKED = "manifest_linked"
    MANIFEST_DURABLE = "manifest_durable"
    TABLES_DONE = "tables_done"
    DATABASE_DURABLE = "database_durable"
    FILES_REMOVED = "files_removed"
    CATALOG_WRITTEN = "catalog_written"
    CATALOG_COMMITTED = "catalog_committed"


_reached: collections.Counter[str] = collections.Counter()


def reach(step: Step) -> None:
    """Pass a step, or kill the process there."""
    rule = os.environ.get(VARIABLE)
    if not rule:
        return
    name, _, count = rule.partition(":")
    if name != step:
        return
    _reached[name] += 1
    if _reached[name] == int(count or 1):
        os.kill(os.getpid(), signal.SIGKILL)
