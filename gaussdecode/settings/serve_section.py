"""Declare the section `serve`: how `gaussdecode serve` offers a landing to clients."""

import dataclasses
import ipaddress
from pathlib import Path

from gaussdecode.settings.types import (
    GIB,
    HOUR,
    KIB,
    MIB,
    AbsolutePath,
    Address,
    AddressType,
    Boolean,
    Duration,
    Integer,
    Size,
    Text,
    TextList,
    refuse,
    setting,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Network(Text):
    """An address, or a network, of IPv4 or IPv6."""

    pattern: str = r"[0-9A-Fa-f.:/]+"
    allowed: str = "an address or a network, as 10.1.2.0/24 or fd00::/8"

    def read(self, value: object) -> str:
        """Accept what has no bits set beyond its network."""
        text = Text.read(self, value)
        try:
            ipaddress.ip_network(text)
        except ValueError:
            raise refuse(value, "is not a network", self.allowed) from None
        return text


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """The server of `gaussdecode serve`, which speaks PostgreSQL's replication protocol; docs/serve.md."""

    in_daemon: bool = setting(
        False,
        Boolean(),
        "Run the server as a process of the daemon, in place of `gaussdecode-serve@.service` beside it. The daemon "
        "starts it again if it ends; the stream goes on.",
    )
    listen: Address = setting(
        Address("127.0.0.1", 15432),
        AddressType(),
        "Address of the port. One that other machines can reach needs `users-file`.",
    )
    monitoring_listen: Address | None = setting(
        None,
        AddressType(),
        "Address of /metrics, /status, /livez, /readyz and /alerts of `gaussdecode serve`, another "
        "one than `monitoring.listen`. Its TLS and `allow-remote` are those of `monitoring`. "
        "Without it there is no such port.",
    )
    allow: tuple[str, ...] = setting(
        (),
        TextList(Network()),
        "Addresses and networks whose clients may connect. Without it, all.",
    )
    users_file: Path | None = setting(
        None,
        AbsolutePath(),
        "File of users and verifiers of their passwords, mode 0600, which `gaussdecode serve "
        "passwd` writes. Without it every client on this machine may do everything.",
    )
    tls_certificate_file: Path | None = setting(
        None,
        AbsolutePath(),
        "PEM file with the certificate of the port, then those between it and its authority. With "
        "it clients of other machines must speak TLS. It is read again when it changes.",
    )
    tls_key_file: Path | None = setting(
        None,
        AbsolutePath(),
        "PEM file with the private key of that certificate, without a password. Mode 0600, or 0640 "
        "if root owns it.",
    )
    catalog_dsn: str = setting(
        "",
        Text(r"[^\0]+", "a libpq connection string"),
        "A libpq connection string of the source's database, PostgreSQL. What clients ask the "
        "catalogue by SELECT goes there. For a role that may log in and nothing else: clients have "
        "its rights. `sslmode` is `verify-full` unless set.",
        is_secret=True,
    )
    connections: int = setting(
        100, Integer(1, 10_000), "Most clients at once, those that log in included."
    )
    slots: int = setting(100, Integer(1, 10_000), "Most virtual slots.")
    login_timeout: float = setting(
        10.0, Duration(1.0, HOUR), "Most time from a connection to the end of its log-in."
    )
    sender_timeout: float = setting(
        60.0,
        Duration(0.0, HOUR),
        "A client that streams and says nothing for this time is cut off; 0s for never. A client "
        "may set its own, by the option `sender-timeout` or by `wal_sender_timeout`.",
    )
    message_bytes: int = setting(1 * MIB, Size(16 * KIB, 64 * MIB), "Largest message of a client.")
    buffer_bytes: int = setting(
        1 * MIB,
        Size(64 * KIB, 256 * MIB),
        "Bytes that wait for one slow client, besides one message or 1 MiB of them, before its sender "
        "waits. A stream without TLS has only the system's buffer of its socket.",
    )
    cache_bytes: int = setting(
        64 * MIB,
        Size(1 * MIB, 64 * GIB),
        "Memory for rows that were read, and their messages, that other clients are about to need, for "
        "each set of tables.",
    )
