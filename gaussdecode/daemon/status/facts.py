"""The data that the status shows, in one class per writer and lifetime.

`DaemonFacts` hold from start to end. Only main's thread changes `Running`; others read it. What the landing's
threads write is in the `Pipeline`.
"""

import dataclasses
import itertools
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from gaussdecode.daemon.guard import Guard
from gaussdecode.daemon.serving import Serving
from gaussdecode.daemon.session import Session
from gaussdecode.daemon.session_group import SessionGroup
from gaussdecode.host.certificates import CertificateEnd
from gaussdecode.settings.dsn import parameters_of
from gaussdecode.settings.rules import SourceKind
from gaussdecode.settings.sections import Config
from gaussdecode.source.certificates import shown_to_servers


@dataclasses.dataclass(frozen=True, slots=True)
class MemberFacts:
    """One source of the landing.

    Attributes:
        name: name in the landing.
        slot: slot on its server.
        host: address of that server.
    """

    name: str
    slot: str
    host: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DaemonFacts:
    """Data that hold as long as the daemon runs.

    Attributes:
        slot: name.
        config: path of the configuration.
        root: directory of the landing.
        started_time: seconds since 1970.
        budget_bytes: sum of all byte bounds.
        decoder_count: ``parallel-decode-num``, or what ``auto`` begins with.
        chooses_decoders: it is ``auto``, and the daemon changes it.
        commit_interval: ``landing.max-commit-interval``, seconds.
        queue_size: ``parallel-queue-size``.
        warn_before: ``guard.warn-before``, seconds.
        source: the source, fit for JSON, without secrets.
        members: every source.
        is_by_csn: the landing is in the order of CSNs, up to marks.
        has_acts: acts are taken over HTTP, with a token.
        certificates: our certificates for servers, by name.
    """

    slot: str
    config: Path
    root: Path
    started_time: float
    budget_bytes: int
    decoder_count: int
    commit_interval: float
    queue_size: int
    warn_before: float | None
    source: Mapping[str, str] = dataclasses.field(default_factory=dict)
    members: tuple[MemberFacts, ...] = ()
    is_by_csn: bool = False
    chooses_decoders: bool = False
    has_acts: bool = False
    certificates: Mapping[str, CertificateEnd] = dataclasses.field(default_factory=dict)

    @property
    def sources(self) -> tuple[MemberFacts, ...]:
        """Every source; one at least."""
        return self.members or (MemberFacts(self.slot, self.slot, self.source.get("host", "")),)

    @property
    def tells_sources(self) -> bool:
        """What waits for what among them is to be told."""
        return self.is_by_csn or len(self.members) > 1

    @classmethod
    def of(cls, config: Config) -> Self:
        """Take them out of a configuration; the daemon starts now."""
        return cls(
            slot=config.slot,
            config=config.path,
            root=config.landing.root,
            started_time=time.time(),
            budget_bytes=sum(config.memory_budget().values()),
            decoder_count=config.decoding.parallel_decode_num,
            commit_interval=config.landing.max_commit_interval,
            queue_size=config.decoding.parallel_queue_size,
            warn_before=config.guard.warn_before,
            source=_source(config),
            members=tuple(
                MemberFacts(name, of.slot, _source(of)["host"])
                for name, of in config.members.items()
            ),
            is_by_csn=config.lands_by_csn,
            chooses_decoders=config.changes_decoders,
            has_acts=config.monitoring.control_token_file is not None,
            certificates={
                name: CertificateEnd(path) for name, path in shown_to_servers(config).items()
            },
        )


def _source(config: Config) -> dict[str, str]:
    """Kind, and where it is: of the connection string only what is no secret."""
    source = config.source
    if source.kind is SourceKind.CAPTURE:
        return {"kind": source.kind, "host": str(source.file), "database": "", "plugin": ""}
    given = parameters_of(source.dsn)
    hosts = (given.get("host") or given.get("hostaddr") or "localhost").split(",")
    ports = given.get("port", "5432").split(",")
    places = itertools.zip_longest(hosts, ports[: len(hosts)], fillvalue=ports[0])
    return {
        "kind": source.kind,
        "host": ",".join(f"{host}:{port}" for host, port in places),
        "database": given.get("dbname", ""),
        "plugin": source.plugin if source.kind is SourceKind.GAUSSDB else "pgoutput",
    }


@dataclasses.dataclass(frozen=True, slots=True)
class Standing:
    """How the daemon is; replaced whole, so that no reader sees a state with another's reason.

    Attributes:
        state: a word for the operator: starting, connecting, streaming, retrying, refused,
            stopping.
        reason: why it is not streaming, or None.
    """

    state: str = "starting"
    reason: str | None = None

    @property
    def is_streaming(self) -> bool:
        """Changes are being received."""
        return self.state == "streaming"

    @property
    def text(self) -> str:
        """Both, for systemd."""
        return self.state if self.reason is None else f"{self.state}: {self.reason}"


@dataclasses.dataclass(frozen=True, slots=True)
class Pause:
    """An operator wants nothing more to land.

    Attributes:
        by: who asked.
        since: seconds since 1970.
    """

    by: str
    since: float

    @property
    def text(self) -> str:
        """For people."""
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.since))
        return f"paused by {self.by} since {since}"

    def to_record(self) -> dict[str, object]:
        """Make it fit for JSON."""
        return {"by": self.by, "since": self.since}


@dataclasses.dataclass(slots=True)
class Running:
    """Data that change while the daemon runs. Written by main's thread only.

    Attributes:
        standing: state and reason.
        session: the running one, or None between two.
        sessions: started so far.
        restarts: sessions that ended in an error, by class of error.
        pause: the pause that an operator asked for; None without one.
        decoder_changes: sessions that ended for another number of decoders.
        is_slot_lost: the daemon ends because changes are missing.
        guard: guard of slot and disk, or None before it looks.
        snapshot: progress of the tables whose rows are being landed, or None.
        snapshot_read: rows and bytes read for it since the start.
        snapshot_faults: reasons why snapshot requests cannot be used, by path.
        is_snapshot_settled: whether it is known that no table waits for its existing rows.
        port_end: until when the certificate of the monitoring port is valid; None without TLS.
        virtual_slots: slots of `gaussdecode serve`, fit for JSON.
        serving: the server for clients of the landing, or None where it is not run in the daemon.
    """

    standing: Standing = Standing()
    session: Session | SessionGroup | None = None
    sessions: int = 0
    restarts: Mapping[str, int] = dataclasses.field(default_factory=dict)
    pause: Pause | None = None
    decoder_changes: int = 0
    is_slot_lost: bool = False
    guard: Guard | None = None
    snapshot: Callable[[], dict[str, dict[str, Any]]] | None = None  # Any: JSON
    snapshot_read: Callable[[], tuple[int, int]] = lambda: (0, 0)
    snapshot_faults: Callable[[], dict[str, str]] = dict
    is_snapshot_settled: Callable[[], bool] = lambda: False
    port_end: Callable[[], float] | None = None
    virtual_slots: Callable[[], list[dict[str, Any]]] = list  # Any: JSON
    serving: Serving | None = None

    @property
    def shown_state(self) -> str:
        """The word for the operator: a stream that is paused is called so."""
        is_paused = self.pause is not None and self.standing.is_streaming
        return "paused" if is_paused else self.standing.state

    def decoder_count(self, facts: DaemonFacts) -> int:
        """Decoders of each running session; between two, of the first."""
        return facts.decoder_count if self.session is None else self.session.lead.decoder_count

    def process_ids(self) -> dict[str, int]:
        """Process ids of the children, by name."""
        found = {} if self.session is None else self.session.process_ids()
        pid = None if self.serving is None else self.serving.state.pid
        return found if pid is None else {**found, "serve": pid}

    def is_optional_paused(self) -> bool:
        """Whether the guard has asked for work that can wait to wait."""
        return self.guard is not None and self.guard.is_paused

    def note_restart(self, error: str) -> None:
        """Count a session that ended in an error of a class."""
        self.restarts = {**self.restarts, error: self.restarts.get(error, 0) + 1}
