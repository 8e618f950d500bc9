"""Read from when to when a certificate is valid, and see that a file with a private key is private."""

import dataclasses
import datetime
import ssl
import stat
from _ssl import _test_decode_cert  # type: ignore[attr-defined]
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
            ssl.SSLError: it holds no certificate.
        """
        path.open("rb").close()  # OpenSSL gives no reason where a file cannot be opened
        return cls.of(_test_decode_cert(path))

    def problem(self) -> str | None:
        """Why the certificate is not valid now, with its dates and the time of the clock; None if it is."""
        now = datetime.datetime.now(datetime.UTC).timestamp()
        if self.begin <= now <= self.end:
            return None
        what = "is not valid yet" if now < self.begin else "has expired"
        return f"{what}: it is {self}, and this machine's clock says {_spelled(now)}"

    def __str__(self) -> str:
        return f"valid from {_spelled(self.begin)} to {_spelled(self.end)}"


def is_open_key(path: Path) -> bool:
    """Whether a file with a private key is open to others; where root owns it, its group may read it.

    libpq has the same rule. A Secret of Kubernetes, and a file for a service's group, belong to root.
    """
    facts = path.stat()
    allowed = stat.S_IRWXU | (stat.S_IRGRP if facts.st_uid == 0 else 0)
    return bool(stat.S_IMODE(facts.st_mode) & ~allowed)


def _spelled(seconds: float) -> str:
    return f"{datetime.datetime.fromtimestamp(seconds, datetime.UTC):%Y-%m-%d %H:%M} UTC"
