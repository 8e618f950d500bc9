"""All errors that end a command or the daemon, and their exit statuses for systemd.

Each class has an exit status, and says whether trying again can help. The message says what was wrong, where,
and what to do; it never holds a column value or a password. Arguments go to ``super().__init__`` unchanged, so
that an error survives the way from a child process to the main one (see `to_record` and `from_record`).
"""

import json
import os
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from gaussdecode.model.lsn import Lsn
from gaussdecode.model.seal import NewerFormatError
from gaussdecode.model.title import table_title

EX_OK: Final = os.EX_OK
EX_DATAERR: Final = os.EX_DATAERR
EX_UNAVAILABLE: Final = os.EX_UNAVAILABLE
EX_SOFTWARE: Final = os.EX_SOFTWARE
EX_OSERR: Final = os.EX_OSERR
EX_IOERR: Final = os.EX_IOERR
EX_PROTOCOL: Final = os.EX_PROTOCOL
EX_CONFIG: Final = os.EX_CONFIG


class GaussDecodeError(Exception):
    """Root of all errors this package raises on purpose.

    Attributes:
        exit_status: exit status of the process; see the table in docs/operate.md.
        retryable: True when the same attempt may succeed later without an operator.
    """

    exit_status: ClassVar[int] = EX_SOFTWARE
    retryable: ClassVar[bool] = False

    def name_source(self, source: str) -> None:
        """Say in the text which of several sources it is of, unless it begins with that."""
        if not str(self).startswith((f"{source}:", f"source {source}:")):
            self._say_before(f"source {source}: ")

    def _say_before(self, text: str) -> None:
        said, *others = self.args or ("",)
        self.args = (f"{text}{said}", *others)


class ConfigError(GaussDecodeError):
    """The configuration, or the operator's request, cannot be carried out."""

    exit_status = EX_CONFIG


class DataTestError(GaussDecodeError):
    """Rows fail a data test that is declared to stop; the same rows fail again."""

    exit_status = EX_DATAERR


class AccessError(ConfigError):
    """A file or a directory may not be used by this process's user; see `access.refused`."""


class SourceError(GaussDecodeError):
    """The source refused, vanished or broke off; trying again later may help.

    Attributes:
        sqlstate: the server's five-character code, or None when it sent none.
    """

    exit_status = EX_UNAVAILABLE
    retryable = True

    def __init__(self, reason: str, sqlstate: str | None = None) -> None:
        super().__init__(reason, sqlstate)
        self.reason = reason
        self.sqlstate = sqlstate

    def _say_before(self, text: str) -> None:
        super()._say_before(text)
        self.reason = f"{text}{self.reason}"

    def __str__(self) -> str:
        return self.reason if self.sqlstate is None else f"{self.reason} (SQLSTATE {self.sqlstate})"


class InexactStreamError(SourceError):
    """A transaction cannot be told exactly, because it was streamed while open.

    Sent whole, it can: the next session asks for that.

    Attributes:
        end_lsn: end of the transaction; None where that is not known yet.
    """

    def __init__(self, reason: str, end_lsn: int | None = None) -> None:
        super().__init__(reason)
        self.args = (reason, end_lsn)
        self.end_lsn = end_lsn


class SpoolFullError(SourceError):
    """Transactions that are streamed while open need more of the disk than they may have.

    Waiting would not end it: what would free room comes behind what there is no room for. Sent whole,
    one after the other, they need less; the next session asks for that.
    """


class OpenTransactionError(SourceError):
    """The server failed while it sent a transaction that is open yet.

    Sent whole, it may not fail, and a transaction that is rolled back is not sent at all;
    the next session asks for that.
    """


class SourceRefusedError(SourceError):
    """The source will refuse again until an operator changes something."""

    exit_status = EX_CONFIG
    retryable = False


class LoginRefusedError(SourceRefusedError):
    """The server does not let us in: an operator changes that there, or in a file that is read again.

    Of a landing that has begun it may pass, and ends no daemon: a password, a certificate or a rule of
    pg_hba.conf is changed on both sides, one after the other.
    """


class IdentityError(SourceRefusedError):
    """The server, slot or position is not the one the commit log belongs to."""


class StreamError(GaussDecodeError):
    """What came in the stream breaks its protocol; the same bytes fail again.

    Attributes:
        lsn: WAL position of the message, or of the first of its batch; None where unknown.
        xid: XID of the open transaction; None where none was open, or it was not sent.
        source: name of the source, if there are several; else empty.
    """

    exit_status = EX_PROTOCOL
    source = ""

    def __init__(self, lsn: int | None, xid: int | None) -> None:
        self.lsn = None if lsn is None else Lsn(lsn)
        self.xid = xid
        super().__init__(*self.fields())

    def fields(self) -> tuple[Any, ...]:  # Any: of several types
        """Arguments that make the same error again."""
        return (self.lsn, self.xid)

    def place(self, lsn: int | None, xid: int | None) -> None:
        """Say where in the stream it stands, as far as that is not known yet; 0 for unknown."""
        if self.lsn is None and lsn:
            self.lsn = Lsn(lsn)
        self.xid = self.xid or xid or None
        self.args = self.fields()

    def name_source(self, source: str) -> None:
        """Say it where the LSN and the transaction are said."""
        self.source = source

    @property
    def where(self) -> str:
        """Source, LSN and transaction, after a comma; empty where none is known."""
        near = f", source {self.source}" if self.source else ""
        near += "" if self.lsn is None else f", near {self.lsn}"
        return near if self.xid is None else f"{near}, in transaction {self.xid}"


class WireError(StreamError):
    """Bytes that do not follow the wire format.

    Attributes:
        reason: the problem; lower case, no full stop, never a column value.
        offset: byte in the message where reading stopped, from 0.
    """

    def __init__(
        self, reason: str, offset: int, lsn: int | None = None, xid: int | None = None
    ) -> None:
        self.reason = reason
        self.offset = offset
        super().__init__(lsn, xid)

    def fields(self) -> tuple[Any, ...]:  # Any: of several types
        """See `StreamError`."""
        return (self.reason, self.offset, self.lsn, self.xid)

    def __str__(self) -> str:
        return f"{self.reason} at byte {self.offset}{self.where}"


class TruncatedError(WireError):
    """A field reaches past the end of its message."""


class RowError(WireError):
    """A row that its relation does not describe; where it ends is known all the same.

    Attributes:
        oid: OID of the relation.
        described: namespace and name, where the same batch described the relation.
    """

    def __init__(
        self,
        reason: str,
        offset: int,
        lsn: int | None,
        xid: int | None,
        oid: int,
        described: Sequence[str] = (),
    ) -> None:
        self.oid = oid
        self.described = tuple(described)
        super().__init__(reason, offset, lsn, xid)

    def fields(self) -> tuple[Any, ...]:  # Any: of several types
        """See `StreamError`."""
        return (*super().fields(), self.oid, list(self.described))


class LargeRowError(RowError):
    """A row above source.max-row-bytes.

    Attributes:
        size: size of the row, in bytes.
        limit: the largest that is taken.
        column: number of its largest column, from 0.
        column_size: column size of that value, in bytes.
        name: name of that column, or empty.
    """

    def __init__(
        self,
        size: int,
        limit: int,
        column: int,
        column_size: int,
        name: str = "",
        lsn: int | None = None,
        xid: int | None = None,
        oid: int = 0,
        described: Sequence[str] = (),
    ) -> None:
        self.size = size
        self.limit = limit
        self.column = column
        self.column_size = column_size
        self.name = name
        super().__init__("row above source.max-row-bytes", 0, lsn, xid, oid, described)

    def fields(self) -> tuple[Any, ...]:  # Any: of several types
        """See `StreamError`."""
        row = (self.size, self.limit, self.column, self.column_size, self.name)
        return (*row, self.lsn, self.xid, self.oid, list(self.described))

    def __str__(self) -> str:
        column = self.name or f"number {self.column + 1}"
        return (
            f"a row of {self.size} bytes{self.where}, of which {self.column_size} are in column "
            f"{column}; source.max-row-bytes allows {self.limit}: raise it, as far as `gaussdecode "
            "check` finds memory for it"
        )


class TableError(GaussDecodeError):
    """What one table brought cannot be landed; it would fail again, and others are well.

    Attributes:
        namespace: schema name.
        name: name of the table.
        oid: OID of it, or None.
        lsn: every transaction that ends up to here is unharmed.
        reason: the problem; never a value.
    """

    exit_status = EX_PROTOCOL

    def __init__(self, namespace: str, name: str, oid: int | None, lsn: int, reason: str) -> None:
        super().__init__(namespace, name, oid, lsn, reason)
        self.namespace = namespace
        self.name = name
        self.oid = oid
        self.lsn = Lsn(lsn)
        self.reason = reason

    def _say_before(self, text: str) -> None:
        self.reason = f"{text}{self.reason}"
        self.args = (*self.args[:-1], self.reason)

    def __str__(self) -> str:
        return f"table {table_title(self.namespace, self.name)}, after {self.lsn}: {self.reason}"


class SuspectError(GaussDecodeError):
    """The server may have left changes out, and an operator is to decide before anything goes on."""

    exit_status = EX_CONFIG


class LostRowError(GaussDecodeError):
    """The server sent a row without its columns: what was in it is nowhere in the stream.

    Attributes:
        reason: the problem; never a value.
        table: namespace and name.
    """

    exit_status = EX_PROTOCOL

    def __init__(self, reason: str, table: Sequence[str]) -> None:
        super().__init__(reason, list(table))
        self.reason = reason
        self.table = tuple(table)

    def _say_before(self, text: str) -> None:
        super()._say_before(text)
        self.reason = f"{text}{self.reason}"

    def __str__(self) -> str:
        return self.reason


class SequenceError(StreamError):
    """Messages or entries came in an order that the protocol forbids.

    Attributes:
        reason: the problem; never a column value.
    """

    def __init__(self, reason: str, lsn: int | None = None, xid: int | None = None) -> None:
        self.reason = reason
        super().__init__(lsn, xid)

    def fields(self) -> tuple[Any, ...]:  # Any: of several types
        """See `StreamError`."""
        return (self.reason, self.lsn, self.xid)

    def __str__(self) -> str:
        return f"{self.reason}{self.where}"


class AccountError(GaussDecodeError):
    """What came in is not what would land: rows were lost or doubled inside of this program.

    Nothing of the stretch is confirmed, and the server sends it again.
    """

    exit_status = EX_SOFTWARE


class LandingError(GaussDecodeError):
    """The landing is damaged, fenced, or is not what the log says it is."""

    exit_status = EX_IOERR


class TargetBusyError(LandingError):
    """Another process writes the target of Spark's tables; later it does not."""

    retryable = True


class OvertakenError(LandingError):
    """Another writer of the target committed first; nothing was changed, and the next try sees it."""

    retryable = True


class CatalogError(GaussDecodeError):
    """A catalog of tables did not do what was asked; trying again later may help."""

    exit_status = EX_UNAVAILABLE
    retryable = True


class DiskError(LandingError):
    """The file system failed; what it holds now is for recovery to decide."""


class DiskStillFullError(DiskError):
    """Nothing failed but the wait for room, which a stop or another's failure ended."""


class SparkEndedError(GaussDecodeError):
    """Spark's Java process died under a command; nothing unfinished was published."""

    exit_status = EX_UNAVAILABLE


class StoppedError(GaussDecodeError):
    """A stop was asked for; what was under way begins again at the next start."""


class FencedError(LandingError):
    """Another host has taken the landing over; starting again does not take it back."""

    exit_status = EX_CONFIG


class MirrorError(GaussDecodeError):
    """The store of the mirror did not do what was asked; trying again later may help."""

    exit_status = EX_UNAVAILABLE
    retryable = True


class MirrorRefusedError(MirrorError):
    """The store refuses until an operator changes something."""

    exit_status = EX_CONFIG
    retryable = False


class ChildError(GaussDecodeError):
    """A process of the pipeline died without saying why, or stopped moving."""

    exit_status = EX_SOFTWARE


class LimitError(GaussDecodeError):
    """The system gives no more file descriptors, processes or memory; see `limits`."""

    exit_status = EX_OSERR


class StateError(GaussDecodeError):
    """A step that the table of states does not list: nothing was changed; a fault of ours."""


class SupersededError(GaussDecodeError):
    """The caller's session is over: what it asked for is refused, and nothing was changed."""


def unreadable(where: object, error: Exception, remedy: str) -> GaussDecodeError:
    """The error of a file of a landing or target that cannot be read.

    Args:
        where: names the file.
        error: why, from reading it.
        remedy: advice for a damaged file.
    """
    if isinstance(error, NewerFormatError):
        return ConfigError(
            f"{where}: {error}: a newer gaussdecode wrote it, or one that is too old; use the version that "
            "wrote it"
        )
    return LandingError(f"{where}: {error}; {remedy}")


def attributed(error: Exception, blamed: tuple[int, bytes] | None) -> Exception:
    """Say whose row could not be decoded, where it is a row's error.

    Args:
        error: a decoder's.
        blamed: OID and description in JSON of the relation whose row was read; None for no row.
    """
    if not isinstance(error, WireError) or blamed is None:
        return error
    oid, definition = blamed
    found = json.loads(definition) if definition else {}
    described = [found["namespace"], found["name"]] if found else []
    if isinstance(error, LargeRowError):
        name = found["columns"][error.column]["name"] if found else ""
        row = (error.size, error.limit, error.column, error.column_size, name)
        return LargeRowError(*row, error.lsn, error.xid, oid, described)
    return RowError(error.reason, error.offset, error.lsn, error.xid, oid, described)


_CLASSES: Final[dict[str, type[GaussDecodeError]]] = {
    name: of
    for name, of in globals().items()
    if isinstance(of, type) and issubclass(of, GaussDecodeError)
}


def to_record(error: BaseException) -> dict[str, Any]:  # Any: JSON
    """Make an error fit for JSON, to cross a process border."""
    if isinstance(error, GaussDecodeError) and type(error).__name__ in _CLASSES:
        return {"class": type(error).__name__, "args": list(error.args)}
    return {"class": "GaussDecodeError", "args": [f"{type(error).__name__}: {error}"]}


def from_record(record: dict[str, Any]) -> GaussDecodeError:  # Any: JSON
    """Rebuild an error that `to_record` wrote."""
    cls = _CLASSES.get(record["class"], GaussDecodeError)
    return cls(*record["args"])


def error_text(error: BaseException) -> str:
    """The text of an error, after what was noted of where it came from: the source, of several."""
    return ": ".join([*getattr(error, "__notes__", ()), str(error)])
