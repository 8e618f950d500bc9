"""Which publications a landing followed: noticed when one is not any more what it was.

A publication that is dropped and made again, renamed away and back, or altered, is there
whenever somebody looks, and yet changes that were made in between may never have been sent:
PostgreSQL decides by the catalogue as it was at each change. From 18 on it only warns, and a
warning can be missed. So OID and version (xmin) of every configured publication are remembered
with the landing, and compared when a stream is about to start, and now and then while it runs.
What differs is a suspect entry of the commit log, durable before anything behind it lands.

Given what the server said; asks nobody.
"""

from collections.abc import Mapping
from typing import Any, Final

from gaussdecode.land.snapshots import SnapshotStore
from gaussdecode.model.lsn import Lsn

KEY: Final = "*publications"  # in the ledger, beside the tables
REASON: Final = "publication_changed"

Json = dict[str, Any]  # Any: JSON
Identities = Mapping[str, tuple[int, int]]
"""By name: OID and xmin of the row in pg_publication."""


def read_identities(record: Mapping[str, Any]) -> dict[str, tuple[int, int]]:  # Any: JSON
    """Identities out of JSON."""
    return {name: (int(oid), int(xmin)) for name, (oid, xmin) in record.items()}


def differences(known: Identities, seen: Identities) -> list[str]:
    """Say what became of each publication that is not what it was; none is missing here."""
    found = []
    for name in sorted(known.keys() & seen.keys()):
        (oid, version), (oid_now, version_now) = known[name], seen[name]
        if oid != oid_now:
            found.append(f"publication {name!r} was dropped and made again")
        elif version != version_now:
            found.append(f"publication {name!r} was altered")
    return found


def suspect(found: list[str], lsn: int, wal_end: int) -> Json:
    """What a suspect entry says.

    Args:
        found: from `differences`.
        lsn: everything up to here landed before.
        wal_end: of the server, when it was noticed.
    """
    return {
        "reason": REASON,
        "text": f"{'; '.join(found)}: changes from {Lsn(lsn)} on that it did not publish meanwhile "
        "were never sent; compare the tables, and take a new snapshot of those that differ "
        "(gaussdecode snapshot --table)",
        "from_lsn": lsn,
        "until_lsn": max(lsn, wal_end),
        "tables": [],
        "transactions": [],
    }


def known_to(store: SnapshotStore) -> dict[str, tuple[int, int]]:
    """What the landing remembers; empty before it was noted first."""
    return read_identities(store.ledger().get(KEY, {}).get("seen", {}))


def remember(store: SnapshotStore, seen: Identities) -> None:
    """Write down what was seen; durable when this returns."""
    kept = {**known_to(store), **seen}
    store.note({KEY: {"state": "listed", "seen": {name: list(of) for name, of in kept.items()}}})
