"""The daemon and its processes."""

from collections.abc import Mapping
from typing import Final

from gaussdecode.metrics.metric import Metric, counter, gauge, histogram

STAGE_SECONDS: Final = "gaussdecode_daemon_stage_seconds"
DAEMON: Final[tuple[Metric, ...]] = (
    gauge(
        "daemon_limit",
        "bool",
        "1 for the stage that limits the throughput now, 0 for the others",
        "none: nothing to do. Otherwise the status page names the setting to change.",
        labels=("stage",),
    ),
    gauge(
        "daemon_guard_step",
        "step",
        "Step of the guard: 0 calm, 1 warn, 2 pause optional work, 3 drop the slot",
        "Above 0: see source_invalidation_seconds and land_full_seconds for the time that is left.",
    ),
    counter(
        "daemon_guard_failures",
        "looks",
        "Checks of the slot that the server did not answer",
        "Growing while changes are streamed: the role may not open a second connection.",
    ),
    gauge(
        "daemon_memory_budget_bytes",
        "bytes",
        "Sum of all configured memory limits",
        "Compare with process_resident_memory_bytes and the unit's MemoryMax.",
    ),
    gauge(
        "daemon_start_time_seconds",
        "seconds",
        "Start time of the daemon, in seconds since 1970",
        "Recent again and again: systemd restarts it; see the log.",
    ),
    gauge(
        "daemon_certificate_end_time_seconds",
        "seconds",
        "When a certificate ends, in seconds since 1970: that of the monitoring port, and ours for the server; "
        "NaN where its file cannot be read",
        "Less than two weeks ahead: renew it.",
        labels=("certificate",),
    ),
    gauge(
        "daemon_resident_bytes",
        "bytes",
        "Resident memory of each process of the daemon; shared queues count in each process that "
        "uses them",
        "Growing without end: a leak, which is a bug. Compare with the unit's MemoryMax.",
        labels=("process",),
    ),
    counter(
        "daemon_cpu_seconds",
        "seconds",
        "CPU time of each process of the daemon, user and system",
        "A rate near 1 of the reader or a decoder: that process is the limit.",
        labels=("process",),
    ),
    counter(
        "daemon_sessions",
        "sessions",
        "Streams started, including the first one",
        "Growing: connections break; see the log and daemon_restarts_total.",
    ),
    gauge(
        "daemon_paused",
        "bool",
        "1 while an operator has paused the landing",
        "1: nothing lands, and the server keeps WAL. `gaussdecode ctl SLOT resume` goes on.",
    ),
    gauge(
        "daemon_serve_up",
        "bool",
        "1 while the server of serve.in-daemon runs, 0 while it does not; not shown without it, and while it begins",
        "0: `gaussdecode status` says why. It is started again by itself.",
    ),
    counter(
        "daemon_restarts",
        "restarts",
        "Streams that were started again after an error, by class of error",
        "ChildError: a process died, see its exit status in the log. SourceError: network or server.",
        labels=("reason",),
    ),
    histogram(
        "daemon_stage",
        "Time per stage: of a batch in receive, decode and collect, of an entry in gather and "
        "publish, of a row group in encode, of a file in sync; see Stages",
        "While lag grows, the first stage whose quantiles have risen is the limit; see Stages.",
        labels=("stage",),
    ),
    gauge("daemon_info", "bool", "1, with the version", labels=("version",)),
)

STAGES: Final[Mapping[str, tuple[str, str]]] = {
    "receive": (
        "from the first message of a batch in the reader until a decoder takes it",
        (
            "If decode rises too: see the limit on the status page; more decoders are not always "
            "faster. Else a later stage is full; read on."
        ),
    ),
    "decode": (
        "decoding a batch, up to 1 MiB of messages or one larger row",
        (
            "Near 1 s without huge rows: the machine has no idle core. Lower parallel-decode-num, or "
            "add cores."
        ),
    ),
    "collect": (
        (
            "from then until the batch is in commit order, including waits for its turn and for the "
            "writer"
        ),
        (
            "If encode, sync or publish rises too: that is the limit. Alone: the collector's one "
            "thread is; use a second slot."
        ),
    ),
    "gather": (
        "from the first complete transaction of an entry until the entry is asked for",
        (
            "Near landing.max-commit-interval: as configured; lower that for fresher tables. Above "
            "it: see publish."
        ),
    ),
    "encode": (
        "compressing and writing one row group",
        "Raise landing.writer-lanes while cores are idle; landing.compression: snappy or none takes less.",
    ),
    "sync": ("footer and fsync of one data file", "The disk is slow, or others write much to it."),
    "publish": (
        "committing an entry: directories synced, entry written and linked, files renamed",
        (
            "Slow together with sync: the disk. Slow alone: too many files per entry; raise "
            "landing.max-commit-interval."
        ),
    ),
}
"""The meaning of each ``stage`` of daemon_stage_seconds, and advice when it rises."""
