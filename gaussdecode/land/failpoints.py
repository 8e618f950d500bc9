"""Let a test make the landing fail or die at a given place.

``GAUSSDECODE_FAILPOINTS`` is a comma-separated list of ``point[:count]=action``: at the
count-th time (from 1, default 1) the point is reached, the action happens:

* ``kill``: the process is killed, nothing of it runs on;
* ``exit``: the process ends at once with status 70, without any clean-up;
* an errno name such as ``ENOSPC``: the operation fails with it instead of being done. With
  ``count+`` every time from the count-th on.

Points are the file operations (`Operation`) and the arrows between the steps of a
entry (`Step`), of a snapshot (`SnapshotStep`), of a mirror (`ShipStep`) and of an operator's act (`ActStep`). Without the variable a point costs one comparison.
"""

import enum
import errno
import os
import re
import signal
import threading
from typing import Final, Self

from gaussdecode.errors import ConfigError

VARIABLE: Final = "GAUSSDECODE_FAILPOINTS"
_RULE: Final = re.compile(r"([a-z_]+)(?::(\d+)(\+?))?=([A-Za-z0-9]+)")
_KILL: Final = "kill"
_EXIT: Final = "exit"


class Operation(enum.StrEnum):
    """File operations, each reached just before it is done."""

    CREATE = "create"
    WRITE = "write"
    SYNC = "sync"
    SYNC_DIRECTORY = "sync_directory"
    LINK = "link"
    RENAME = "rename"
    REPLACE = "replace"
    UNLINK = "unlink"
    MAKE_DIRECTORY = "make_directory"
    REMOVE_DIRECTORY = "remove_directory"
    SET_TIME = "set_time"
    READ = "read"


class Step(enum.StrEnum):
    """Steps of committing an entry, in order."""

    PREPARED_WRITTEN = "prepared_written"
    FILES_CLOSED = "files_closed"
    FILES_DURABLE = "files_durable"
    ENTRY_WRITTEN = "entry_written"
    ENTRY_LINKED = "entry_linked"
    ENTRY_COMMITTED = "entry_committed"
    FILES_RENAMED = "files_renamed"
    ENTRY_SHOWN = "entry_shown"
    POSITION_CONFIRMED = "position_confirmed"
    ENTRY_TIDIED = "entry_tidied"
    CHECKPOINT_WRITTEN = "checkpoint_written"
    FLOOR_COMMITTED = "floor_committed"
    FILES_DELETED = "files_deleted"


class ShipStep(enum.StrEnum):
    """Arrows of shipping an entry to the mirror, in order."""

    SCHEMAS_SHIPPED = "schemas_shipped"
    FILES_SHIPPED = "files_shipped"
    ENTRY_SHIPPED = "entry_shipped"
    SHIPMENT_CONFIRMED = "shipment_confirmed"
    CHECKPOINT_SHIPPED = "checkpoint_shipped"
    NUMBERED_SHIPPED = "numbered_shipped"
    MIRROR_EXPIRED = "mirror_expired"
    REMOVAL_NOTED = "removal_noted"
    LOCAL_REMOVED = "local_removed"
    MIRROR_FETCHED = "mirror_fetched"
    HOST_CLAIMED = "host_claimed"


class SnapshotStep(enum.StrEnum):
    """Arrows of a snapshot, in order."""

    BEGINNING_NOTED = "beginning_noted"
    SNAPSHOT_CUT = "snapshot_cut"
    SNAPSHOT_CHUNK_READ = "snapshot_chunk_read"
    SNAPSHOT_READ = "snapshot_read"
    SNAPSHOT_HELD = "snapshot_held"
    SNAPSHOT_WRITTEN = "snapshot_written"
    SNAPSHOT_COMMITTED = "snapshot_committed"
    SNAPSHOT_NOTED = "snapshot_noted"
    SNAPSHOT_ANSWERED = "snapshot_answered"
    QUARANTINE_COMMITTED = "quarantine_committed"
    TABLE_QUARANTINED = "table_quarantined"
    TABLE_IGNORED = "table_ignored"
    TABLE_ASKED = "table_asked"


class ActStep(enum.StrEnum):
    """Arrows of adding or dropping a table, in order."""

    PUBLICATION_ALTERED = "publication_altered"
    ROWS_ASKED = "rows_asked"


Point = Operation | Step | SnapshotStep | ShipStep | ActStep


class Failpoints:
    """The rules in force, and how often each point was reached."""

    def __init__(self, rules: dict[str, tuple[int, bool, str]]) -> None:
        self._rules = rules
        self._reached: dict[str, int] = {}
        self._lock = threading.Lock()

    @classmethod
    def from_environment(cls) -> Self | None:
        """Read `VARIABLE`; None when it is not set, which is the normal case."""
        text = os.environ.get(VARIABLE, "")
        return cls.parse(text) if text else None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the rules.

        Raises:
            ConfigError: a rule has another shape, or names no point or action.
        """
        points = {*Operation, *Step, *SnapshotStep, *ShipStep, *ActStep}
        rules = {}
        for rule in text.split(","):
            match = _RULE.fullmatch(rule.strip())
            if match is None or match[1] not in points:
                raise ConfigError(f"{VARIABLE}: not a failpoint: {rule.strip()!r}")
            action = match[4]
            if action not in (_KILL, _EXIT) and not hasattr(errno, action):
                raise ConfigError(f"{VARIABLE}: not an action: {action!r}")
            rules[match[1]] = (int(match[2] or 1), bool(match[3]), action)
        return cls(rules)

    def reach(self, point: Point) -> None:
        """Say that a point is reached; fail or die there if a rule says so.

        Raises:
            OSError: the rule names an errno.
        """
        rule = self._rules.get(point)
        if rule is None:
            return
        with self._lock:
            count = self._reached[point] = self._reached.get(point, 0) + 1
        wanted, onwards, action = rule
        if count != wanted and not (onwards and count > wanted):
            return
        if action == _KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        if action == _EXIT:
            os._exit(os.EX_SOFTWARE)
        number = int(getattr(errno, action))
        raise OSError(number, f"{os.strerror(number)} (failpoint {point})")
