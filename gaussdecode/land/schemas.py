"""Store the schemas of tables, and find them by the fingerprint of their content.

Given a JSON description of a table's columns. The same content always has the same ``schema_id``, and its file
is durable before an entry needs it. A column that was renamed (same attribute number) has ``renamed_from``.
The file also has the numbers that were dropped by then, and why a number is unknown. These three are not part
of the fingerprint: they are what was known when the schema was first seen. Each of several sources has its
own numbers: a description names its source, and follows descriptions of that source alone.
"""

import dataclasses
import hashlib
import threading
from typing import Any, Final

from gaussdecode.errors import LandingError, unreadable
from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.disk import Disk
from gaussdecode.land.entry_steps import PendingSchema
from gaussdecode.land.names import SCHEMAS
from gaussdecode.model.landing import schema_key
from gaussdecode.model.seal import canonical_json, check_version, read_sealed, sealed

COLUMNS: Final = "columns"
NUMBER: Final = "attribute_number"
RENAMED_FROM: Final = "renamed_from"
SOURCE: Final = "source"
_REMARKS: Final = frozenset({"dropped", "unknown"})
_ID_DIGITS: Final = 16

_Json = dict[str, Any]  # a schema file: JSON that only collect and spark look into


@dataclasses.dataclass(slots=True)
class _Last:
    schema_id: str
    record: _Json | None


class SchemaStore:
    """Schemas of one landing, as one session sees them. Thread-safe.

    What `schema_id_for` gives is provisional until the entry that carries the schema
    is durable; the next session's store begins with what the log says.
    """

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._last = {key: _Last(id_, None) for key, id_ in log.schemas.items()}
        self._pending: dict[tuple[str, str], PendingSchema] = {}
        self._written: set[str] = set()  # keys whose schemas go with the newest entry

    def schema_id_for(self, table: str, record: _Json) -> tuple[str, bool]:
        """Find or make the schema of a table.

        Args:
            table: encoded directory name.
            record: JSON with a list ``columns`` of objects; ``name`` and, when the
                catalogue gave it, ``attribute_number`` of each are looked at; and ``source``,
                where there are several.

        Returns:
            The schema_id, and whether the table's rows change over to it now (then the
            entry wants a `SchemaChange`).
        """
        schema_id, key = fingerprint(record), schema_key(table, record.get(SOURCE))
        with self._lock:
            last = self._last.get(key)
            if last is not None and last.schema_id == schema_id:
                return schema_id, False
            previous = None if last is None else self._record(table, last)
            content = sealed(canonical_json(with_renames(record, previous)))
            self._pending[key, schema_id] = PendingSchema(table, schema_id, content)
            self._last[key] = _Last(schema_id, record)
            return schema_id, True

    def last(self, table: str) -> str | None:
        """The schema_id the table's rows land under now; None for a table never seen."""
        with self._lock:
            last = self._last.get(table)
            return None if last is None else last.schema_id

    def take_pending(self) -> tuple[PendingSchema, ...]:
        """Hand over the schema files that the next entry must write.

        Before anything more is asked for, those of the one before are written, and can be read.
        """
        with self._lock:
            pending = tuple(self._pending.values())
            keys = {key for key, _ in self._pending}
            for key in self._written - keys:
                self._last[key].record = None
            self._written = keys
            self._pending = {}
            return pending

    def _record(self, table: str, last: _Last) -> _Json | None:
        if last.record is None:
            last.record = read_schema(self._log.disk, table, last.schema_id)
        return last.record


def fingerprint(record: _Json) -> str:
    """Give the schema_id of a description; remarks do not count."""
    columns = [
        {key: value for key, value in column.items() if key != RENAMED_FROM}
        for column in record.get(COLUMNS, ())
    ]
    counted = {key: value for key, value in record.items() if key not in _REMARKS}
    content = canonical_json({**counted, COLUMNS: columns})
    return hashlib.sha256(content).hexdigest()[:_ID_DIGITS]


def with_renames(record: _Json, previous: _Json | None) -> _Json:
    """Add ``renamed_from`` to the columns whose name changed under the same number."""
    if previous is None:
        return record
    before = {column[NUMBER]: column["name"] for column in previous[COLUMNS] if column.get(NUMBER)}
    names = {column["name"] for column in record[COLUMNS]}
    columns = []
    for column in record[COLUMNS]:
        old = before.get(column.get(NUMBER))
        is_renamed = old is not None and old != column["name"] and old not in names
        columns.append({**column, RENAMED_FROM: old} if is_renamed else column)
    return {**record, COLUMNS: columns}


def read_schema(disk: Disk, table: str, schema_id: str) -> _Json | None:
    """Read a schema file; None if it is not there.

    Raises:
        LandingError: its content is not what its name says.
    """
    path = f"{SCHEMAS}/{table}/{schema_id}.json"
    raw = disk.read(path)
    if raw is None:
        return None
    try:
        record: _Json = read_sealed(raw)
        check_version(record, 1)
        found = fingerprint(record)
    except (ValueError, AttributeError) as error:
        raise unreadable(path, error, "restore it from a copy of this landing") from error
    if found != schema_id:
        raise LandingError(f"{path}: altered, its content has the fingerprint {found}; restore it")
    return record
