"""Write the log: few structured events with fixed names, one line each, on standard error.

JSON, unless standard error is a terminal; with a priority in front where the journal reads. Every event is a member
of `Event`; nothing else is logged. Secrets are dropped by key and cut out of texts, and row values are never
passed to it. A log that cannot be written is no reason to stop landing, so errors of the stream are
swallowed. Child processes do not log: they report, and `relay` logs their reports.
"""

import enum
import functools
import os
import re
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, Final, TextIO

# structlog imports rich wherever that is (pyiceberg brings it): 5 MB of each process, for nothing here.
_modules: dict[str, object] = sys.modules  # type: ignore[assignment]  # None stands for a module that is not there
_modules.setdefault("rich", None)
import structlog  # noqa: E402
from structlog.typing import FilteringBoundLogger, Processor, WrappedLogger  # noqa: E402

if _modules["rich"] is None:
    del _modules["rich"]

LEVELS: Final[Mapping[str, int]] = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_SECRET_KEYS: Final = re.compile(r"pass|secret|credential|token|sslkey|dsn|conninfo", re.IGNORECASE)
_SECRET_TEXT: Final = re.compile(
    r"((?:password|sslpassword|passfile|sslkey)\s*=\s*)('(?:[^'\\]|\\.)*'|\S+)", re.IGNORECASE
)
_SECRET_URL: Final = re.compile(r"(postgres(?:ql)?://[^\s:/@]*:)[^\s@]*(@)", re.IGNORECASE)
_FIRST: Final = ("time", "level", "event", "stage")
_MAX_TEXT: Final = 4000  # of one field; arbitrary, journald splits lines at 48 KiB


class Event(enum.StrEnum):
    """What is worth a line. The value is the name in the log."""

    DAEMON_STARTED = "daemon_started"
    DAEMON_STOPPING = "daemon_stopping"
    DAEMON_STOPPED = "daemon_stopped"
    CONFIG_RELOADED = "config_reloaded"
    RELOAD_REFUSED = "reload_refused"
    ACT_DONE = "act_done"
    ACT_REFUSED = "act_refused"
    NOTIFY_FAILED = "notify_failed"
    CONFIG_WARNING = "config_warning"
    SERVER_KNOWN_BUG = "server_known_bug"
    SESSION_RETRYING = "session_retrying"
    STREAMING_FALLBACK = "streaming_fallback"
    DECODERS_CHANGED = "decoders_changed"
    LANES_ADDED = "lanes_added"
    SOURCE_CONNECTED = "source_connected"
    RESENT_COMPARED = "resent_compared"
    RESENT_UNKNOWN = "resent_unknown"
    TURNS_GIVEN_UP = "turns_given_up"
    STANDBY_PROMOTED = "standby_promoted"
    TIMELINE_FOLLOWED = "timeline_followed"
    CATALOG_UNREADABLE = "catalog_unreadable"
    SPOOL_FULL = "spool_full"
    CHILD_STARTED = "child_started"
    CHILD_ENDED = "child_ended"
    CHILD_REPORTED = "child_reported"
    BATCH_LANDED = "batch_landed"
    MINUTE_LANDED = "minute_landed"
    LANDING_RECOVERED = "landing_recovered"
    LANDING_COMPACTED = "landing_compacted"
    LANDING_EXPIRED = "landing_expired"
    SERVE_SLOTS_LOST = "serve_slots_lost"
    MIRROR_FETCHED = "mirror_fetched"
    MIRROR_TAKEN_OVER = "mirror_taken_over"
    MIRROR_FAILED = "mirror_failed"
    MIRROR_RECOVERED = "mirror_recovered"
    MIRROR_FENCED = "mirror_fenced"
    MIRROR_ENTRIES_LOST = "mirror_entries_lost"
    DISK_FULL = "disk_full"
    DISK_FREED = "disk_freed"
    ROWS_MAY_BE_MISSING = "rows_may_be_missing"
    SUSPECTS_UNSETTLED = "suspects_unsettled"
    CONNECTION_RENEWED = "connection_renewed"
    SERVER_NOTICE = "server_notice"
    HTTP_STARTED = "http_started"
    CERTIFICATE_READ = "certificate_read"
    GUARD_STEP = "guard_step"
    GUARD_BLIND = "guard_blind"
    GAP_RECORDED = "gap_recorded"
    WATCHDOG_WITHHELD = "watchdog_withheld"
    SNAPSHOT_LANDED = "snapshot_landed"
    SNAPSHOT_FAILED = "snapshot_failed"
    SNAPSHOT_AT_ONCE = "snapshot_at_once"
    SNAPSHOT_WAITS = "snapshot_waits"
    SNAPSHOT_REFUSED = "snapshot_refused"
    SNAPSHOT_REQUEST_UNREADABLE = "snapshot_request_unreadable"
    TABLES_CHANGED = "tables_changed"
    TABLES_NOT_LISTED = "tables_not_listed"
    TLS_THROUGH_PYTHON = "tls_through_python"
    TLS_BY_RECORDS = "tls_by_records"
    TABLES_NOT_PUBLISHED = "tables_not_published"
    TABLE_IGNORED = "table_ignored"
    TABLE_QUARANTINED = "table_quarantined"
    TABLES_IN_DOUBT = "tables_in_doubt"
    SLOT_DROPPED = "slot_dropped"
    SLOT_ADVANCED = "slot_advanced"
    SERVE_STARTED = "serve_started"
    SERVE_STOPPED = "serve_stopped"
    SERVE_RETRYING = "serve_retrying"
    CLIENT_CONNECTED = "client_connected"
    CLIENT_REFUSED = "client_refused"
    CLIENT_SLOT = "client_slot"
    CLIENT_STREAMS = "client_streams"
    CLIENT_STREAM_ENDED = "client_stream_ended"
    ERROR = "error"


class _Stream:
    """Writes lines and never fails: a full disk under the journal must not stop the data."""

    def __init__(self, file: TextIO, *, has_priorities: bool) -> None:
        self._file = file
        self._has_priorities = has_priorities

    def _write(self, priority: int, message: str) -> None:
        """Write one line."""
        prefix = f"<{priority}>" if self._has_priorities else ""
        try:
            self._file.write(f"{prefix}{message}\n")
            self._file.flush()
        except (OSError, ValueError):
            pass

    # The methods that structlog calls, by sd-daemon(3)'s priorities.
    debug = functools.partialmethod(_write, 7)
    info = msg = log = functools.partialmethod(_write, 6)
    warning = warn = functools.partialmethod(_write, 4)
    error = exception = functools.partialmethod(_write, 3)
    critical = fatal = functools.partialmethod(_write, 2)


def redact(text: str) -> str:
    """Cut passwords out of a text that libpq or a URL may have put there."""
    return _SECRET_URL.sub(r"\1***\2", _SECRET_TEXT.sub(r"\1***", text))


def _clean(value: object) -> object:
    if isinstance(value, str):
        text = redact(value)
        return text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + "..."
    if isinstance(value, Mapping):
        return {str(k): _clean(v) for k, v in value.items() if not _SECRET_KEYS.search(str(k))}
    if isinstance(value, list | tuple | set | frozenset):
        return [_clean(item) for item in value]
    return value if isinstance(value, int | float | None) else _clean(str(value))


def drop_secrets(
    _logger: WrappedLogger,
    _method: str,
    fields: MutableMapping[str, Any],  # Any: any field
) -> MutableMapping[str, Any]:  # Any: any field
    """Remove fields that name a secret, at any depth, and redact texts."""
    cleaned = _clean(dict(fields))
    return cleaned if isinstance(cleaned, dict) else {}


def _add(context: Mapping[str, object]) -> Processor:
    """Make the processor that adds what every line carries, in every thread."""

    def add(
        _logger: WrappedLogger,
        _method: str,
        fields: MutableMapping[str, Any],  # Any: any field
    ) -> MutableMapping[str, Any]:  # Any: any field
        return {**fields, **context}

    return add


def is_for_a_person(file: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether lines go to a terminal rather than to the journal or a collector."""
    return file.isatty() and "JOURNAL_STREAM" not in environment


def takes_color(file: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether a terminal shows colours and its user wants them; see https://no-color.org."""
    return file.isatty() and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


def _ordered(
    _logger: WrappedLogger,
    _method: str,
    fields: MutableMapping[str, Any],  # Any: any field
) -> MutableMapping[str, Any]:  # Any: any field
    """Put first what every line begins with, so that lines can be read and sorted as text."""
    first = {name: fields[name] for name in _FIRST if name in fields}
    return {**first, **fields}


def is_journal(file: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether a file is the journal's own stream, as systemd says in JOURNAL_STREAM.

    It may name a stream that was redirected since: device and inode tell.
    """
    try:
        facts = os.fstat(file.fileno())
    except (OSError, ValueError):
        return False
    return environment.get("JOURNAL_STREAM") == f"{facts.st_dev}:{facts.st_ino}"


def configure(
    level: str = "info",
    *,
    file: TextIO | None = None,
    is_readable: bool | None = None,
    **context: object,
) -> None:
    """Set the log up, once per process.

    Args:
        level: least level to write.
        file: output stream; standard error when None.
        is_readable: lines for people instead of JSON; None decides by the file.
        context: fields of every line, such as the slot.
    """
    target = sys.stderr if file is None else file
    readable = is_for_a_person(target, os.environ) if is_readable is None else is_readable
    has_priorities = is_journal(target, os.environ)
    renderer: Processor = (
        structlog.dev.ConsoleRenderer(colors=takes_color(target, os.environ), timestamp_key="time")
        if readable
        else structlog.processors.JSONRenderer(ensure_ascii=False, default=str)
    )
    structlog.configure(
        processors=[
            _add(context),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            structlog.processors.format_exc_info,
            _ordered,
            drop_secrets,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=lambda *_args: _Stream(target, has_priorities=has_priorities),
        cache_logger_on_first_use=False,
    )


def get_logger(stage: str) -> FilteringBoundLogger:
    """Give the logger of one stage; usable before `configure`.

    Args:
        stage: folder name, such as ``land``; field ``stage`` of its lines.
    """
    logger: FilteringBoundLogger = structlog.get_logger(stage=stage)
    return logger


def relay(report: Mapping[str, object], *, stage: str, **context: object) -> None:
    """Say what a child process reported.

    Args:
        report: ``{"kind": "log", "event": ..., "level": ..., field: ...}`` as it came
            through the report pipe; an event that is no member of `Event` is logged as
            `Event.CHILD_REPORTED` with its name as a field.
        stage: stage of the child.
        context: more fields, such as ``decoder``.
    """
    fields = {k: v for k, v in report.items() if k not in {"kind", "event", "level", "stage"}}
    name, level = str(report.get("event", "")), str(report.get("level", "info"))
    if name not in set(Event):
        fields, name = {**fields, "reported": name}, Event.CHILD_REPORTED.value
    number = LEVELS.get(level, LEVELS["info"])
    get_logger(stage).log(number, name, **{**fields, **context})
