"""Follow tables whose names have changed, in the ledger. Pure: no I/O.

The ledger has a record per title, and an OID tells which table it is of.
"""

from collections.abc import Mapping

from gaussdecode.land.snapshots import WHY_STOPPED, Json
from gaussdecode.model.quarantine import DROPPED
from gaussdecode.snapshot.choice import QUARANTINED


def missed(ledger: Mapping[str, Json], tables: Mapping[str, int], n: int) -> dict[str, Json]:
    """Records of the tables of which changes are missed now, so that they are read anew later.

    What goes on landing under another name misses nothing.

    Args:
        ledger: what is known of each table.
        tables: OID of each published table, by title.
        n: the last entry.
    """
    oids = set(tables.values())
    return {
        title: {**record, "state": "missed", "n": n}
        for title, record in ledger.items()
        if record.get("state") in ("done", "streamed")
        and not record.get(DROPPED)
        and title not in tables
        and record.get("oid") not in oids
    }


def followed(ledger: Mapping[str, Json], tables: Mapping[str, int]) -> dict[str, Json]:
    """Records by which a quarantine goes along with a table that was renamed.

    Args:
        ledger: what is known of each table.
        tables: OID of each published table, by title.
    """
    titles = {oid: title for title, oid in tables.items()}
    moved: dict[str, Json] = {}
    for title, record in ledger.items():
        now = titles.get(record.get("oid") or 0, title)
        if record.get("state") != QUARANTINED or now == title:
            continue
        known = ledger.get(now, {})
        why = {WHY_STOPPED: record.get(WHY_STOPPED)}
        moved[now] = {**(known if known.get("state") == "asked" else record), **why}
        moved.setdefault(title, {WHY_STOPPED: None})
    return moved
