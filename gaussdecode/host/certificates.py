"""Read from when to when a certificate is valid, and see that a file with a private key is private.

`ssl` tells the dates of a certificate only for an authority, or for what the other side of a connection has shown.
Files are read by `cryptography`, which has wheels for every platform that pyarrow has wheels for. It is imported where a
certificate is configured only.
"""

import dataclasses
import datetime
import math
import ssl
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self


@dataclasses.dataclass(frozen=True, slots=True)
class Validity:
    """From when to when a certificate is valid, both included; seconds since 1970."""

    begin: int
    end: int

    @classmethod
    def of(cls, decoded: Mapping[str, Any]) -> Self:  # Any: ssl's form of a certificate
        """That of a certificate as `ssl` decodes it."""
        begin, end = (ssl.cert_time_to_seconds(decoded[key]) for key in ("notBefore", "notAfter"))
        return cls(begin, end)

    @classmethod
    def of_file(cls, path: Path) -> Self:
        """That of the first certificate of a file.

        Raises:
            OSError: the file cannot be read.
            ValueError: it holds no certificate, or a damaged one.
        """
        from cryptography import x509

        found = x509.load_pem_x509_certificate(path.read_bytes())
        dates = (found.not_valid_before_utc, found.not_valid_after_utc)
        begin, end = (int(each.timestamp()) for each in dates)
        return cls(begin, end)

    def problem(self) -> str | None:
        """Why the certificate is not valid now, with its dates and the time of the clock; None if it is."""
        now = datetime.datetime.now(datetime.UTC).timestamp()
        if self.begin <= now <= self.end:
            return None
        what = "is not valid yet" if now < self.begin else "has expired"
        return f"{what}: it is {self}, and this machine's clock says {spelled(now)}"

    def __str__(self) -> str:
        return f"valid from {spelled(self.begin)} to {spelled(self.end)}"


class CertificateEnd:
    """Until when the certificate of a file is valid; the file is read again when it changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, ...] | None = None
        self._end = math.nan

    def seconds(self) -> float:
        """Seconds since 1970; NaN where the file cannot be read or holds no certificate."""
        seen = stamp(self._path)
        if seen != self._seen:
            self._seen = seen
            try:
                self._end = float(Validity.of_file(self._path).end)
            except (OSError, ValueError):
                self._end = math.nan
        return self._end


def stamp(path: Path) -> tuple[int, ...] | None:
    """What changes with a file; None where there is none."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns


def is_open_key(path: Path) -> bool:
    """Whether a file with a private key is open to others; where root owns it, its group may read it.

    libpq has the same rule. A Secret of Kubernetes, and a file for a service's group, belong to root.
    """
    facts = path.stat()
    allowed = stat.S_IRWXU | (stat.S_IRGRP if facts.st_uid == 0 else 0)
    return bool(stat.S_IMODE(facts.st_mode) & ~allowed)


def spelled(seconds: float) -> str:
    """A moment, in seconds since 1970, for people."""
    return f"{datetime.datetime.fromtimestamp(seconds, datetime.UTC):%Y-%m-%d %H:%M} UTC"
