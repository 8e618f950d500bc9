"""Name the stage that limits the speed, and the setting that would change it.

Pure: the caller gives the share of time that every stage worked and waited. A pipeline is as fast as its
slowest stage: the stages before it wait for room, those after it for input. So the search begins at the
reader and follows the waiting for room, to the stage that does not wait for another::

    reader stalls? --no--> the server, the network, or the reader itself
      yes: decoders wait for room? --no--> the decoders
        yes: collector waits for the writer? --no--> the collector
          yes: committer or lanes sync most of the time? --yes--> the disk's syncs, else the lanes

What a stage does counts while it does it: one that stands still is seen to work or to wait.

The server's own view (`ServerHint`) only says more where the search ends at the server.

The search uses waits for room, not queue lengths. Lengths jump between empty and full within milliseconds.
A queue of 128 small batches may be empty while one of 3 large ones is full.
"""

import dataclasses
import enum
from typing import Final

from gaussdecode.daemon.status.history import Sample
from gaussdecode.daemon.status.stopped import Stopped

WINDOW_SECONDS: Final = 30.0
_FULL: Final = 0.5  # share of a queue from which it counts as large; arbitrary
WAITS: Final = 0.2  # share of the time from which a wait counts; arbitrary
_WORKS: Final = 0.7  # share from which a stage counts as busy; arbitrary

_SLOW_DISK: Final = "a disk that syncs faster; `iostat -x 1` shows one that does not answer"


class Stage(enum.StrEnum):
    """The limiting stage; the label of the metric."""

    NONE = "none"
    CONNECTION = "connection"
    SERVER = "server"
    NETWORK = "network"
    RECEIVE = "receive"
    DECODE = "decode"
    COLLECT = "collect"
    ENCODE = "encode"
    COMMIT = "publish"  # as dashboards know it
    DISK = "disk"


@dataclasses.dataclass(frozen=True, slots=True)
class Limit:
    """The answer.

    Attributes:
        stage: stage that limits.
        sentence: says so, with the figures it was concluded from.
        setting: remedy, or None when none is needed.
    """

    stage: Stage
    sentence: str
    setting: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class ServerHint:
    """The server's view of the process that sends to us.

    Attributes:
        wait_event: ``pg_stat_activity.wait_event``; None while it computes.
        spilled_bytes: per second, to the server's disk while decoding.
        read_share: how full the server's own read change queues are, 0 to 1; None where it
            does not decode in parallel or does not tell.
        decode_share: the same for its decode change queues.
    """

    wait_event: str | None = None
    spilled_bytes: float = 0.0
    read_share: float | None = None
    decode_share: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Context:
    """Data besides the rates.

    Attributes:
        is_streaming: changes come.
        reason: why not.
        is_disk_full: landing waits for room.
        is_spool_full: a transaction is larger than the spool may be.
        is_by_csn: the landing is in the order of CSNs.
        mark_waits: reason for which the present CSN mark waits, in words, if it takes long.
        decoder_count: ``parallel-decode-num``.
        chooses_decoders: it is ``auto``, and the daemon changes the number where a trial shows a gain.
        lane_count: threads that encode.
        usual_lag_seconds: up to here a lag is no sign of a limit.
        read_share: how full our read change queues are, 0 to 1, by the bound that binds.
        decode_share: the same for its decode change queues.
        hint: hint of the server, where it may be read.
        stopped: processes that do not run.
    """

    is_streaming: bool
    reason: str | None
    is_disk_full: bool
    decoder_count: int
    lane_count: int
    usual_lag_seconds: float
    read_share: float = 0.0
    decode_share: float = 0.0
    hint: ServerHint | None = None
    is_spool_full: bool = False
    is_by_csn: bool = False
    mark_waits: str | None = None
    chooses_decoders: bool = False
    stopped: tuple[Stopped, ...] = ()

    @property
    def decoding_remedy(self) -> str:
        """What may make decoding faster.

        More decoders often cost more than they bring: only a number that was tried is advised.
        """
        if self.chooses_decoders:
            return (
                "a second slot for some of the tables; with parallel-decode-num: auto the daemon "
                "itself uses more decoders where a trial shows that they are faster"
            )
        return (
            "decoding.parallel-decode-num: auto on PostgreSQL, which tries whether another number is "
            "faster; on GaussDB compare another number"
        )


def find_limit(rates: Sample | None, context: Context) -> Limit:
    """Name the limiting stage.

    Args:
        rates: per second, see `History.rates`; None while nothing is known.
        context: see there.
    """
    if context.is_disk_full:
        return Limit(
            Stage.DISK,
            "The landing's disk is full: landing waits for space.",
            "free space, or a shorter landing.retention",
        )
    if context.is_spool_full:
        return Limit(
            Stage.DISK,
            "A transaction needs more space than landing.spool-bytes: nothing is received.",
            "landing.spool-bytes",
        )
    if not context.is_streaming:
        return Limit(
            Stage.CONNECTION,
            f"No changes arrive: {context.reason or 'not connected'}.",
            "see the log; source.dsn, the slot, the server",
        )
    if context.stopped:
        first = context.stopped[0]
        stage = Stage.RECEIVE if first.is_reader else Stage.DECODE
        return Limit(stage, first.what, first.command)
    if rates is None:
        return Limit(Stage.NONE, "Too early to say: the daemon has just started.", None)
    if rates.source_stalled_seconds_total < WAITS:
        return _before_the_queues(rates, context)
    return _behind_the_reader(rates, context)


def _percent(share: float) -> str:
    return f"{min(share, 1.0):.0%}"


def _before_the_queues(rates: Sample, context: Context) -> Limit:
    """The reader finds room: the limit, if there is one, is before it or the reader."""
    if not rates.source_lag_seconds > context.usual_lag_seconds:  # nor where it is not known
        return Limit(
            Stage.NONE,
            "Keeping up: the reader waits for the server "
            f"{_percent(rates.source_waited_seconds_total)} of the time, and no stage waits for space.",
            None,
        )
    if context.mark_waits is not None:
        return Limit(
            Stage.SERVER,
            f"Nothing lands until the next CSN mark, which waits {context.mark_waits}.",
            "end that transaction, or see why that server does not answer; `gaussdecode status "
            "--json` lists it by source",
        )
    busy = rates.source_busy_seconds_total
    if busy >= _WORKS:
        what = f"works {_percent(busy)} of the time, and no later stage is full"
        if context.decoder_count == 1:
            return Limit(
                Stage.DECODE, f"Decoding, in the reader's process, {what}.", context.decoding_remedy
            )
        return Limit(
            Stage.RECEIVE,
            f"The reader {what}.",
            "fewer tables or columns in the publication, or a second slot",
        )
    return _server(rates, context)


def _server(rates: Sample, context: Context) -> Limit:
    hint = context.hint
    waits = (
        f"The reader waits for the server {_percent(rates.source_waited_seconds_total)} of the time"
    )
    if hint is None:
        return Limit(
            Stage.SERVER,
            f"{waits}: the server or the network is the limit.",
            "a role that may see pg_stat_activity shows which",
        )
    if hint.read_share is not None and hint.decode_share is not None:
        return _server_queues(waits, hint.read_share, hint.decode_share, context)
    if hint.wait_event in {"WalSenderWaitForWAL", "WalSenderMain"}:
        return Limit(
            Stage.NONE,
            f"{waits}, and the server waits for new WAL: the WAL behind has no changes, or they will "
            "be committed soon.",
            None,
        )
    if hint.wait_event in {"WalSenderWriteData", "ClientWrite"}:
        return Limit(
            Stage.NETWORK,
            f"{waits}, and the server waits until it can send: the network is the limit.",
            "the network between the server and this machine",
        )
    is_spilling = str(hint.wait_event).startswith("ReorderBuffer")
    if hint.spilled_bytes > 0 or is_spilling:
        return Limit(
            Stage.SERVER,
            f"{waits}, and the server spills {hint.spilled_bytes / 1e6:.1f} MB/s while it decodes.",
            "logical_decoding_work_mem on the server",
        )
    if hint.wait_event == "WALRead":
        return Limit(
            Stage.SERVER,
            f"{waits}, and the server waits for its disk to read WAL.",
            "the server's disk; a smaller lag is read from memory",
        )
    return Limit(
        Stage.SERVER,
        f"{waits}: the server's decoding, which has one core per slot, is the limit.",
        "fewer tables in the publication, or a second slot for some of them",
    )


def _server_queues(waits: str, read: float, decode: float, context: Context) -> Limit:
    """As GaussDB's manual reads gs_get_parallel_decode_status()."""
    seen = f"its read change queues are {_percent(read)} full, its decode change queues {_percent(decode)}"
    if decode >= _FULL:
        return Limit(
            Stage.NETWORK,
            f"{waits}, and the server waits until it can send: {seen}.",
            "the network between the server and this machine",
        )
    if read >= _FULL:
        return Limit(
            Stage.SERVER,
            f"{waits}: the server's decoders are the limit: {seen}.",
            f"{context.decoding_remedy}; the server's decoders follow it",
        )
    return Limit(
        Stage.SERVER,
        f"{waits}: the server's reading of its WAL is the limit: {seen}.",
        "the server's disk"
        + ("" if context.is_by_csn else ", or decoding on a standby (decoding.standby-connection)"),
    )


def _behind_the_reader(rates: Sample, context: Context) -> Limit:
    """The reader waits for room: follow the waiting."""
    waits = rates.decode_waited_output_seconds_total / context.decoder_count
    works = rates.decode_busy_seconds_total / context.decoder_count
    seen = (
        f"read change queues {_percent(context.read_share)} full, "
        f"decode change queues {_percent(context.decode_share)}"
    )
    # A wait counts when it is over: a decoder that has waited since then shows by its full queue.
    if context.decoder_count > 1 and waits < WAITS and context.decode_share < _FULL:
        return Limit(
            Stage.DECODE,
            f"The {context.decoder_count} decoders work {_percent(works)} of the time and the "
            f"reader waits for them {_percent(rates.source_stalled_seconds_total)} ({seen}).",
            context.decoding_remedy,
        )
    if rates.collect_blocked_seconds_total < WAITS:
        busy = rates.collect_busy_seconds_total - rates.collect_blocked_seconds_total
        return Limit(
            Stage.COLLECT,
            f"The collector works {_percent(busy)} of the time; the stages before it wait for space "
            f"({seen}).",
            "a second slot for some of the tables: the collector is one thread",
        )
    if rates.land_published_seconds_total >= _WORKS:
        return Limit(
            Stage.COMMIT,
            f"Committing (sync and rename) takes {_percent(rates.land_published_seconds_total)} "
            "of the time, and the collector waits for it.",
            "landing.max-commit-interval, or a disk that syncs faster",
        )
    syncs = rates.land_synced_seconds_total
    if syncs >= _WORKS and 2 * syncs > rates.land_encoded_seconds_total:
        return Limit(
            Stage.COMMIT,
            f"Syncing files takes {syncs:.1f} of {context.lane_count} writer lanes, and the "
            f"collector waits for them {_percent(rates.collect_blocked_seconds_total)} ({seen}).",
            _SLOW_DISK,
        )
    lanes = rates.land_encoded_seconds_total / context.lane_count
    beside = rates.land_synced_beside_seconds_total
    if beside >= _WORKS and lanes < _WORKS:
        return Limit(
            Stage.COMMIT,
            f"Files are being synced {_percent(beside)} of the time, and the collector waits for "
            f"them {_percent(rates.collect_blocked_seconds_total)} ({seen}).",
            _SLOW_DISK,
        )
    return Limit(
        Stage.ENCODE,
        f"The {context.lane_count} writer lanes encode {_percent(lanes)} of the time, and the "
        f"collector waits for them {_percent(rates.collect_blocked_seconds_total)}.",
        "landing.writer-lanes, while the machine has idle cores; landing.compression",
    )
