"""Find misconfiguration around a GaussDB or openGauss source; see `doctor` for PostgreSQL.

Settings that keep a stream from starting at all (wal_level, value styles, encodings, pg_hba.conf) are
problems of the plan and are not repeated here.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Final

from gaussdecode.model.sqlnames import quoted_name
from gaussdecode.model.words import counted
from gaussdecode.operations.check.doctor import (
    LEAST_TIMEOUT_MS,
    NAMED_TABLES,
    Finding,
    clock_finding,
    connection_findings,
    encryption_finding,
    reading_findings,
    role_limit,
    transaction_findings,
)
from gaussdecode.settings.sections import Config
from gaussdecode.source.coverage import listing
from gaussdecode.source.gaussdb.inspection import GaussInspection
from gaussdecode.source.gaussdb.server import DDL_ADVICE, GaussServerState
from gaussdecode.source.relations import white_list

_RETAINED_BYTES: Final = 16 << 30  # arbitrary: a thousand files of 16 MB
_MOST_STREAMS: Final = 20  # of the server, with more than one decoder
_KNOWN: Final = ("openGauss", "GaussDB")


@dataclasses.dataclass(frozen=True, slots=True)
class GaussCheckInput:
    """Input of the rules."""

    config: Config
    server: GaussServerState
    seen: GaussInspection

    @property
    def role(self) -> str:
        """The role, quoted for SQL."""
        return quoted_name(self.seen.role)


Rule = Callable[[GaussCheckInput], Iterator[Finding]]


def _version(inputs: GaussCheckInput) -> Iterator[Finding]:
    profile = inputs.server.profile
    if profile.product not in _KNOWN:
        yield Finding(
            f"{profile.name} is not known here",
            "it is treated as openGauss 3.0.0: it has most in common with its descendants",
            "land a few days beside another copy, and compare with `gaussdecode spark apply`",
        )
        return
    if profile.is_candidate:
        yield Finding(
            f"{profile.name} is a release candidate",
            "it may lack what the release of this number has",
            "upgrade the server to the release",
        )
    is_parallel = inputs.config.decoding.is_parallel
    if profile.drops_after_ddl(is_parallel=is_parallel) and not profile.warns_of_loss:
        yield Finding(
            f"{profile.name} loses rows silently",
            "rows that follow DDL in their transaction are not sent; newer servers send a notice",
            DDL_ADVICE,
        )
    if not is_parallel and not profile.sends_truncate:
        yield Finding(
            f"{profile.name} does not send TRUNCATE",
            "tables that are emptied so keep their rows in what is built from the landing",
            "DELETE instead of TRUNCATE; openGauss 6.0.0 sends it, but not that of a partition",
        )


def _privileges(inputs: GaussCheckInput) -> Iterator[Finding]:
    seen = inputs.seen
    if seen.has_all_rights:
        yield Finding(
            f"role {seen.role} is the initial user",
            "its password gives full access, and some servers do not let it log in from other hosts",
            "CREATE USER gaussdecode WITH REPLICATION PASSWORD '...';  -- and source.dsn",
        )
    elif seen.extra_rights:
        nots = " ".join(f"NO{right}" for right in seen.extra_rights)
        yield Finding(
            f"role {seen.role} may do more than it needs: {', '.join(seen.extra_rights)}",
            "following a slot needs LOGIN and REPLICATION only",
            f"ALTER ROLE {inputs.role} {nots} REPLICATION;",
        )


def _room(inputs: GaussCheckInput) -> Iterator[Finding]:
    seen, slot = inputs.seen, inputs.server.slot
    limit = role_limit(seen.role, seen.connection_limit)
    is_active = slot is not None and slot.is_active
    yield from connection_findings(inputs.config, [limit], is_active=is_active)
    most = _whole(seen, "max_replication_slots")
    if most is not None and slot is None and seen.slots >= most:
        yield Finding(
            f"no replication slot of {most} is free",
            "the slot cannot be created",
            _guc("max_replication_slots", str(most + 4)),
        )
    if is_active:
        return
    senders = _whole(seen, "max_wal_senders")
    if senders is not None and seen.active_slots >= senders:
        yield Finding(
            f"no walsender of {senders} is free",
            "the stream cannot be started",
            _guc("max_wal_senders", str(senders + 4)),
        )
    streams = min(most or _MOST_STREAMS, _MOST_STREAMS)
    if inputs.config.decoding.is_parallel and seen.active_slots >= streams:
        yield Finding(
            f"{counted(seen.active_slots, 'slot is', 'slots are')} being read",
            f"the server runs at most {streams} streams with several decoders",
            "decoding.parallel-decode-num: 1, here or for another slot",
        )


def _snapshots(inputs: GaussCheckInput) -> Iterator[Finding]:
    """Check the rights for reading rows, if rows are wanted and a snapshot is possible."""
    config = inputs.config
    if config.reads_rows and config.snapshot_refusal is None:
        yield from reading_findings(config, inputs.seen.role, inputs.seen.unreadable)


def _intervals(inputs: GaussCheckInput) -> Iterator[Finding]:
    """Warn of interval partitioning: a new partition is DDL in the transaction of its row."""
    config, profile = inputs.config, inputs.server.profile
    wanted = white_list(config.decoding)
    tables = [
        f"{schema}.{name}"
        for schema, name in inputs.seen.by_interval
        if wanted.allows(schema, name)
    ]
    if not tables or not profile.drops_after_ddl(is_parallel=config.decoding.is_parallel):
        return
    yield Finding(
        f"partitions are made by interval: {listing(tables[:NAMED_TABLES], len(tables))}",
        "an INSERT that needs a new partition makes it, and the server does not send the rows of that "
        "INSERT; where it says so, the entry is suspect",
        "add the partitions ahead of the rows, or have such tables read again with landing.on-suspect: "
        "snapshot; openGauss 6.0.0 and newer send the rows with parallel-decode-num: 1",
    )


def _slot(inputs: GaussCheckInput) -> Iterator[Finding]:
    server, slot = inputs.server, inputs.server.slot
    if slot is None and server.is_standby:
        yield Finding(
            "the server is a standby and has no such slot",
            "slots are made, advanced and dropped on the primary only, and standbys get to know them",
            "name the primary in source.dsn for `gaussdecode slot create`",
        )
    if slot is None or slot.restart_lsn is None:
        return
    retained = server.wal_end - slot.restart_lsn
    if retained > _RETAINED_BYTES:
        yield Finding(
            f"the server keeps {retained >> 30} GiB of WAL for slot {slot.name}",
            "nothing limits it: in the end the server's disk is full",
            f"systemctl start gaussdecode@{inputs.config.name}  # or, to give it up: gaussdecode slot drop",
        )


def _failover(inputs: GaussCheckInput) -> Iterator[Finding]:
    if inputs.seen.settings.get("enable_slot_log") == "off":
        yield Finding(
            "enable_slot_log is off",
            "standbys do not know the slot: after a switchover it is missing, and changes are lost",
            _guc("enable_slot_log", "on"),
        )


def _timeout(inputs: GaussCheckInput) -> Iterator[Finding]:
    timeout = inputs.server.sender_timeout_ms
    if 0 < timeout < LEAST_TIMEOUT_MS:
        yield Finding(
            f"logical_sender_timeout is {timeout} ms",
            "a short pause of the network ends the stream",
            _guc("logical_sender_timeout", "30s"),
        )


def _encoding(inputs: GaussCheckInput) -> Iterator[Finding]:
    if inputs.server.encoding == "SQL_ASCII":
        yield Finding(
            "the database's encoding is SQL_ASCII",
            "the server checks nothing: values that are no UTF-8 land in gd_raw, not in their column",
            "a database with ENCODING 'UTF8', into which the tables are copied",
        )


RULES: Final[tuple[Rule, ...]] = (
    _version,
    _privileges,
    _room,
    _snapshots,
    _intervals,
    _slot,
    _failover,
    _timeout,
    lambda of: transaction_findings(of.seen.oldest_transaction, of.seen.prepared_transactions),
    lambda of: clock_finding(of.seen.clock_offset),
    lambda of: encryption_finding(of.config, is_encrypted=of.seen.is_encrypted),
    _encoding,
)


def examine_gaussdb(inputs: GaussCheckInput) -> list[Finding]:
    """Check version, role, server and slot."""
    return [finding for rule in RULES for finding in rule(inputs)]


def _guc(name: str, value: str) -> str:
    return f'gs_guc set -Z datanode -N all -I all -c "{name} = {value}"  # then restart the server'


def _whole(seen: GaussInspection, name: str) -> int | None:
    text = seen.settings.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else None
