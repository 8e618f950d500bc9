"""The views and functions by which a simulated openGauss tells who runs and which CSN is next.

A number of 64 bits that openGauss calls xid is an xid8 of the PostgreSQL that answers: neither
can be added to, nor cast to a bigint but by way of its text.
"""

import datetime as dt
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kit.gaussactivity import Backend

if TYPE_CHECKING:
    from kit.gaussserver import GaussServer

Rows = list[tuple[object, ...]]
XID8: Final = 5069
XID: Final = 28
TABLES: Final = """
CREATE TABLE gs_catalog.gs_next (nodename text, next_xid xid8, next_csn xid8);
CREATE FUNCTION gs_catalog.gs_get_next_xid_csn() RETURNS SETOF gs_catalog.gs_next LANGUAGE sql
  AS $$SELECT * FROM gs_catalog.gs_next$$;
CREATE FUNCTION gs_catalog.xidout(xid8) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT
  AS 'xid8out';
CREATE TABLE gs_catalog.gs_running (handle int4, gxid xid8, state int2, node text, xmin_ xid8,
  vacuum bool, timeline int8, prepare_xid xid8, pid int8, next_xid xid8);
CREATE FUNCTION gs_catalog.pg_get_running_xacts() RETURNS TABLE (handle int4, gxid xid8,
  state int2, node text, xmin xid8, vacuum bool, timeline int8, prepare_xid xid8, pid int8,
  next_xid xid8) LANGUAGE sql AS $$SELECT * FROM gs_catalog.gs_running$$;
CREATE VIEW gs_catalog.pg_running_xacts AS
  SELECT handle, gxid, state, node, r.xmin AS "xmin", vacuum, timeline, prepare_xid, pid, next_xid
  FROM gs_catalog.pg_get_running_xacts() r;
CREATE TABLE gs_catalog.pg_stat_activity (datid oid, datname name, pid int8, sessionid int8,
  usesysid oid, usename name, application_name text, client_addr inet, client_hostname text,
  client_port int4, backend_start timestamptz, xact_start timestamptz, query_start timestamptz,
  state_change timestamptz, waiting bool, enqueue text, state text, resource_pool name,
  query_id int8, query text, connection_info text, unique_sql_id int8, trace_id text);
CREATE TABLE gs_catalog.pgxc_node (node_name name, node_type "char", node_port int4, node_host name);
CREATE TABLE gs_catalog.pg_prepared_xacts (transaction xid8, gid text, prepared timestamptz,
  owner name, database name);
CREATE FUNCTION gs_catalog.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$
  SELECT pg_catalog.clock_timestamp() + value::int8 * interval '1 microsecond'
  FROM gs_catalog.gs_parameters WHERE name = 'skew_us'$$;
CREATE FUNCTION gs_catalog.pg_backend_pid() RETURNS int8 LANGUAGE sql
  AS $$SELECT value::int8 FROM gs_catalog.gs_parameters WHERE name = 'pid'$$;
"""
_PREPARED, _STARTING = 3, 0
_HIDDEN: Final = "<insufficient privilege>"
_NO_HANDLE: Final = -1
_POSTGRES: Final = 10


def rows(server: "GaussServer", asker: Backend | None, query: str) -> Iterable[tuple[str, Rows]]:
    """Give the content of each table of this module, of one moment.

    Who works on the server changes with every query: of that only what the query asks for.
    """
    asked = query.lower()
    activity, store = server.store.activity, server.store
    pid = asker.pid if asker else 0
    with store.changed:
        csn = store.known_csn if server.behaviour.is_csn_local else store.next_csn
        running = activity.running(pid)
        backends = list(activity.backends.values())
        prepared = list(activity.prepared.values())
        xid = store.next_xid
    is_masked = server.behaviour.masks_activity and not server.may_see_all(asker)
    told = str(csn) if server.behaviour.told_csn == "" else server.behaviour.told_csn
    yield "gs_next", [(server.node_name, str(xid), told)]
    if "running_xacts" in asked:
        yield (
            "gs_running",
            [
                (_NO_HANDLE, str(one.xid), _PREPARED if one.is_prepared else _STARTING,
                 server.node_name, "0", False, 1, str(one.xid if one.is_prepared else 0), one.pid, "0")
                for one in running
            ],
        )  # fmt: skip
    if "pg_stat_activity" in asked:
        yield (
            "pg_stat_activity",
            [
                _session(server, b, is_masked=is_masked and (asker is None or b.user != asker.user))
                for b in backends
            ],
        )
    kind = server.behaviour.node_type
    yield "pgxc_node", [(server.node_name, kind, server.port, "localhost")] * (kind is not None)
    yield (
        "pg_prepared_xacts",
        [(str(p.xid), p.gid, _moment(p.prepared_us), p.owner, server.database) for p in prepared],
    )


def _session(server: "GaussServer", of: Backend, *, is_masked: bool) -> tuple[object, ...]:
    head = (16384, server.database, of.pid, of.pid, _POSTGRES, of.user, of.application)
    if is_masked:
        return (*head, *[None] * 12, _HIDDEN, None, None, None)
    times = (_moment(of.xact_start_us), _moment(of.query_start_us), _moment(of.query_start_us))
    return (
        *head, "127.0.0.1", None, 40000, None, *times, False, None, of.state, "default_pool", 0,
        of.query, None, 0, None,
    )  # fmt: skip


def _moment(us: int | None) -> dt.datetime | None:
    if us is None:
        return None
    return dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(microseconds=us)
