"""Decide where a session starts, which limits it has, and when it may confirm."""

import dataclasses
from collections.abc import Callable
from typing import Final

from gaussdecode.collect._assembler import Assembler
from gaussdecode.collect.collector import CollectorSettings, Prepared
from gaussdecode.collect.resent import Resent
from gaussdecode.daemon.session import Confirm
from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.prepared import PreparedFiles
from gaussdecode.land.transactions import ends_at, landed_since
from gaussdecode.logs import Event, get_logger
from gaussdecode.model.landing import EntryKind, SourcePosition
from gaussdecode.model.lsn import Lsn
from gaussdecode.settings.rules import SourceKind
from gaussdecode.settings.sections import Config

_UNUSED: Final = (EntryKind.GENESIS, EntryKind.IDLE, EntryKind.GAP)
_UNUSED_ENTRIES: Final = 10  # arbitrary: a landing with more has been in use
_NOWHERE: Final = 2**64 - 1  # after every position
_log = get_logger("daemon")


class Confirming:
    """Position that a session's reader may confirm: none before its server is known to be the log's.

    Args:
        confirm: tells the reader a position.
        reached: up to where what has landed may be confirmed; None while that is nowhere.
    """

    def __init__(self, confirm: Confirm, reached: Callable[[], SourcePosition | None]) -> None:
        self._confirm = confirm
        self._reached = reached
        self._has_begun = False

    def tell(self) -> None:
        """Something has become durable."""
        position = self._reached() if self._has_begun else None
        if position is not None:
            self._confirm(position)

    def begin(self) -> None:
        """From now on confirm what may be confirmed, first of all what may be by now."""
        self._has_begun = True  # before the position is read: none may fall in between
        self.tell()


def goes_on_at(known: SourcePosition, timeline: int, log_lsn: int | None) -> SourcePosition:
    """Position where the stream continues: the log's, or a fork below it, in the next epoch."""
    if log_lsn is None or log_lsn >= known.lsn:
        return dataclasses.replace(known, timeline=timeline)
    return dataclasses.replace(known, epoch=known.epoch + 1, timeline=timeline, lsn=log_lsn)


def is_unused(log: CommitLog) -> bool:
    """Whether nothing has landed yet."""
    if log.floor >= 0 or log.next_n > _UNUSED_ENTRIES:
        return False
    return all(entry.kind in _UNUSED for entry in log.iterate(0, log.next_n - 1))


def collector_settings(
    config: Config, *, has_stopped: bool, is_streamed: bool
) -> CollectorSettings:
    """Bounds of a session's collector.

    Args:
        config: checked.
        has_stopped: a table is in quarantine. What is empty without it is known again once it is
            back, so that nothing is skipped as empty until then.
        is_streamed: the session asks for transactions while they are open.
    """
    decoding, landing = config.decoding, config.landing
    return CollectorSettings(
        row_group_rows=landing.row_group_rows,
        row_group_bytes=landing.row_group_bytes,
        memory_bytes=landing.memory_bytes,
        txn_memory_bytes=config.txn_memory_bytes,
        open_memory_bytes=config.reorderbuffer_bytes,
        by_csn=config.lands_by_csn,
        spool_bytes=landing.spool_bytes,
        is_streamed=is_streamed,
        target_file_size=landing.target_file_size,
        max_commit_interval=landing.max_commit_interval,
        only_local=decoding.only_local,
        skip_empty_xacts=decoding.skip_empty_xacts and not has_stopped,
        include_xids=decoding.include_xids,
        include_timestamp=decoding.include_timestamp,
        start_csn=0 if decoding.start_at is None else decoding.start_at[0],
        excluded_users=decoding.excluded_users,
        stops_at_suspects=landing.on_suspect == "stop",
        is_first_due=config.source.kind is not SourceKind.CAPTURE,
    )


def compare_resent(
    log: CommitLog,
    source: str,
    start_lsn: int,
    position: SourcePosition,
    excluded_users: tuple[str, ...],
    go_on: Callable[[], None],
) -> Resent | None:
    """Have resent transactions compared, if there can be any; then continue.

    Args:
        log: log of the landing.
        source: source whose stream it is.
        start_lsn: start of the stream.
        position: end of the landing.
        excluded_users: excluded users whose transactions do not land.
        go_on: called once everything up to the landing's end is known to be what landed.
    """

    def on_equal(count: int) -> None:
        if count:
            _log.info(Event.RESENT_COMPARED, source=source, transactions=count)
        go_on()

    until_lsn = ends_at(position)
    if start_lsn >= until_lsn:
        on_equal(0)
        return None
    stretch = landed_since(log, source, start_lsn)
    if stretch.since_lsn > start_lsn:
        _log.warning(
            Event.RESENT_UNKNOWN,
            source=source,
            start=str(Lsn(start_lsn)),
            known=str(Lsn(stretch.since_lsn)),
        )
    landed = frozenset(log.schemas_of(source))

    def lands_from(directory: str) -> int:
        return stretch.begun.get(directory, 0) if directory in landed else _NOWHERE

    return Resent(
        stretch.transactions,
        stretch.since_lsn,
        until_lsn,
        on_equal,
        lands_from,
        stretch.left_out,
        excluded_users,
    )


def prepared_of(log: CommitLog, position_lsn: int) -> Prepared:
    """The prepared transactions that a session goes on with.

    Of what was prepared beyond its position the server sends everything again: the file was
    written, and the daemon ended before the position could move.

    Raises:
        LandingError: a file is missing, damaged, or of another version.
    """
    log.find_orphans()  # what a session before wrote, and was cut off before it could be named
    files = PreparedFiles(log, *Assembler.layouts())
    return Prepared(
        writer=files,
        kept=tuple(files.read(file) for file in log.prepared if file.lsn <= position_lsn),
        stale=tuple(file.path for file in log.prepared if file.lsn > position_lsn),
    )
