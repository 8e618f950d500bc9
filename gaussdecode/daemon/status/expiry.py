"""Judge what comes to its end: certificates, and the server's transaction numbers."""

import math
from typing import Final

from gaussdecode.daemon.status.text import span
from gaussdecode.daemon.status.trouble import Told
from gaussdecode.host.certificates import spelled

# As the rules of alerts have them; a test compares.
CATALOG_XMIN_AGE: Final = 500e6
FROZEN_AGE: Final = 1e9
CERTIFICATE_SECONDS: Final = 14 * 86400.0


def ending(name: str, end: float, now: float) -> str | None:
    """Say of a certificate that it ends within two weeks, or that it is not known when; else None.

    Args:
        name: of the setting with its file.
        end: seconds since 1970; NaN for not known.
        now: likewise.
    """
    if math.isnan(end):
        return f"The certificate of {name} cannot be read, so it is not known when it ends."
    if end - now >= CERTIFICATE_SECONDS:
        return None
    how = f"ends in {span(end - now)}" if end > now else "has expired"
    return f"The certificate of {name} {how}; it is valid until {spelled(end)}."


def wraparound(kept: float, frozen: float) -> Told | None:
    """Judge how near the server is to the end of its transaction numbers.

    Args:
        kept: age in transactions of the oldest whose catalogue rows the slot keeps.
        frozen: age of the oldest transaction that is not frozen.
    """
    if kept <= CATALOG_XMIN_AGE and frozen <= FROZEN_AGE:
        return None
    return Told(
        f"The server's oldest transaction is {max(kept, frozen) / 1e6:,.0f} million transactions old. "
        f"The oldest that the slot keeps is {kept / 1e6:,.0f} million old. At 2,100 million the server "
        "stops writing.",
        "Find and end the reason that holds the slot back: an old or prepared transaction, or "
        "this daemon's lag. Then run `VACUUM (FREEZE);` in each database of the server.",
    )
