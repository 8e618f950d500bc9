"""Follow tables whose names have changed, in the ledger. Pure: no I/O.

The ledger has a record per title, and an OID tells which table it is of.
"""

from collections.abc import Mapping

from gaussdecode.land.snapshots import WHY_STOPPED, Json
from gaussdecode.model.quarantine import DROPPED
from gaussdecode.snapshot.choice import QUARANTINED, RENAMED


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
        if record.get("state") in ("done", "streamed", RENAMED)
        and not record.get(DROPPED)
        and title not in tables
        and record.get("oid") not in oids
    }


def followed(ledger: Mapping[str, Json], tables: Mapping[str, int], n: int) -> dict[str, Json]:
    """Records by which a quarantine goes along with a table that was renamed.

    A record that stands at the new name gives way, and goes to the name that its own table has now, and so
    on: around, where tables have exchanged their names. One whose table is not published any more has no
    place to go. Its title is read whole anyway, once the table in quarantine is asked for. Where a record
    has gone and none has come, nothing is known of the title.

    Rows under a new name are read as those of every renamed table are: to readers each name is a table. So
    of a table that was `done` nothing but its OID goes along, and it is not new.

    The ledger does not tell the epoch, and a restored source may have given an OID to another table. So
    records move only from a title that is gone or now has another OID, to that of a published table with
    the OID of the record. This is enough: a quarantine holds for its OID whatever the title (`Chooser`, and
    the reader of the stream), and rows of what gives way to it are read again where rows are wanted.

    Args:
        ledger: what is known of each table.
        tables: OID of each published table, by title.
        n: the last entry. What it or an earlier one brought under a title was another table.
    """
    titles = {oid: title for title, oid in tables.items() if oid}
    now = {
        title: titles[record["oid"]]
        for title, record in ledger.items()
        if record.get("oid") in titles and not record.get(DROPPED)
    }
    going = [
        title for title, of in ledger.items() if _is_stopped(of) and now.get(title, title) != title
    ]
    for title in going:  # grows
        there = now[title]
        if now.get(there, there) != there and there not in going:
            going.append(there)
    moved: dict[str, Json] = {title: {"n": n, WHY_STOPPED: None} for title in going}
    for title in reversed(going):  # those that stand still last: they count
        there, record = now[title], ledger[title]
        why = record.get(WHY_STOPPED)
        known = {} if there in going else ledger.get(there, {})
        if _stays(known, record, is_own=there in now):
            known_why = known.get(WHY_STOPPED)
            moved[there] = {**known, "oid": record["oid"], WHY_STOPPED: known_why or why}
        else:
            moved[there] = {**_under_new_name(record), "n": n, WHY_STOPPED: why}
    return moved


def _is_stopped(record: Json) -> bool:
    return record.get("state") == QUARANTINED or bool(record.get(WHY_STOPPED))


def _stays(known: Json, record: Json, *, is_own: bool) -> bool:
    """Whether a record stays at its title, and another one that comes there is given up.

    Args:
        known: the record; empty for none.
        record: the one that comes.
        is_own: the record is of the table that has the title now, too.
    """
    state = known.get("state")
    if state == "asked":
        return True  # by the name of now
    return is_own and bool(known) and (state == QUARANTINED or not _is_stopped(record))


def _under_new_name(record: Json) -> Json:
    is_landed = record.get("state") in ("done", "streamed")
    return {"state": RENAMED, "oid": record["oid"]} if is_landed else record
