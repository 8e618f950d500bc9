"""The SQL side of the simulated server: an openGauss catalogue that a PostgreSQL reads.

No SQL engine of our own: queries run on a real PostgreSQL, in a schema whose tables have the
names, the columns and the content of an openGauss catalogue. ``pg_catalog.`` before one of
them is rewritten to that schema; what openGauss does not have is not there, so a query that
an openGauss would refuse fails here too, as far as PostgreSQL's grammar tells.
"""

import itertools
import re
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import psycopg
from psycopg import pq, sql

from kit import gaussarea, gaussviews
from kit.gaussactivity import Backend
from kit.gaussmessage import lsn_of, lsn_text
from kit.gaussprofile import Profile
from kit.gaussstore import Table
from kit.gausstypes import OWN_TYPES
from kit.postgres import Database, Postgres

if TYPE_CHECKING:
    from kit.gaussserver import GaussServer, Slot

_SCHEMA: Final = "gs_catalog"
_NUMBERS: Final = itertools.count(1)
_TYPES: Final = {gaussviews.XID8: gaussviews.XID}
_RIGHTS: Final = ("rolsuper", "rolcreaterole", "rolcreatedb", "rolauditadmin", "rolsystemadmin")
_ENCODINGS: Final = {"SQL_ASCII": 0, "UTF8": 7, "LATIN1": 8, "GBK": 36, "GB18030": 39}
# Columns that openGauss has and PostgreSQL lacks are added; the reverse are left out.
_TABLES: Final = """
CREATE SCHEMA gs_catalog;
CREATE TABLE gs_catalog.pg_namespace AS SELECT oid, nspname, nspowner FROM pg_catalog.pg_namespace;
CREATE TABLE gs_catalog.gs_class (oid oid, relname name, relnamespace oid, reltype oid,
  relowner oid, relkind "char", relpersistence "char", relnatts int2, relhaspkey bool,
  parttype "char", relreplident "char", reloptions text[]);
CREATE TABLE gs_catalog.gs_partition (oid oid, relname name, parttype "char", parentid oid,
  partstrategy "char", relfilenode oid);
CREATE VIEW gs_catalog.pg_partition AS SELECT p.*, 0::int8 AS xmin FROM gs_catalog.gs_partition p;
CREATE TABLE gs_catalog.gs_files (oid oid, seen oid, now oid, changed_by int8);
CREATE VIEW gs_catalog.pg_class AS SELECT c.*, f.seen AS relfilenode, 0::float8 AS reltuples,
  f.changed_by AS xmin FROM gs_catalog.gs_class c JOIN gs_catalog.gs_files f USING (oid);
CREATE TABLE gs_catalog.gs_area (number int8, location text, xid int8, data text);
CREATE FUNCTION gs_catalog.pg_logical_get_area_changes(text, text, int4, name, text,
  OUT location text, OUT xid int8, OUT data text) RETURNS SETOF record LANGUAGE sql
  AS $$SELECT location, xid, data FROM gs_catalog.gs_area ORDER BY number$$;
CREATE FUNCTION gs_catalog.pg_relation_filenode(oid) RETURNS oid LANGUAGE sql
  AS $$SELECT now FROM gs_catalog.gs_files WHERE oid = $1$$;
CREATE TABLE gs_catalog.pg_attribute (attrelid oid, attname name, atttypid oid, attlen int2,
  attnum int2, attndims int4, atttypmod int4, attstorage "char", attnotnull bool, atthasdef bool,
  attisdropped bool, attinhcount int4);
CREATE TABLE gs_catalog.pg_description (objoid oid, classoid oid, objsubid int4, description text);
CREATE TABLE gs_catalog.pg_attrdef (oid oid, adrelid oid, adnum int2, adbin text, adsrc text,
  adgencol "char");
CREATE TABLE gs_catalog.pg_index (indexrelid oid, indrelid oid, indnatts int2, indisunique bool,
  indisprimary bool, indisvalid bool, indisusable bool, indimmediate bool, indisready bool,
  indkey int2vector, indisreplident bool);
CREATE TABLE gs_catalog.pg_constraint (oid oid, conname name, connamespace oid, contype "char",
  conrelid oid, conindid oid, conkey int2[]);
CREATE TABLE gs_catalog.pg_type AS SELECT oid, typname, typnamespace, typowner, typlen, typbyval,
  typtype, typcategory, typisdefined, typdelim, typrelid, typelem, typarray, typnotnull,
  typbasetype, typtypmod, typndims FROM pg_catalog.pg_type;
CREATE TABLE gs_catalog.pg_enum AS SELECT oid, enumtypid, enumsortorder, enumlabel
  FROM pg_catalog.pg_enum;
CREATE TABLE gs_catalog.pg_database (oid oid, datname name, datdba oid, encoding int4,
  datcollate name, datctype name, datcompatibility name);
CREATE TABLE gs_catalog.pg_settings (name text, setting text, unit text, context text,
  source text, boot_val text, reset_val text);
CREATE TABLE gs_catalog.pg_roles (oid oid, rolname name, rolsuper bool, rolcreaterole bool,
  rolcreatedb bool, rolauditadmin bool, rolsystemadmin bool, rolreplication bool,
  rolcanlogin bool, rolconnlimit int4, rolconfig text[]);
CREATE TABLE gs_catalog.pg_db_role_setting (setdatabase oid, setrole oid, setconfig text[]);
CREATE TABLE gs_catalog.pg_publication (oid oid, pubname name);
CREATE TABLE gs_catalog.gs_parameters (name text, value text);
CREATE FUNCTION gs_catalog.version() RETURNS text LANGUAGE sql
  AS $$SELECT value FROM gs_catalog.gs_parameters WHERE name = 'version'$$;
CREATE FUNCTION gs_catalog.current_database() RETURNS name LANGUAGE sql
  AS $$SELECT value::name FROM gs_catalog.gs_parameters WHERE name = 'database'$$;
CREATE FUNCTION gs_catalog.pg_is_in_recovery() RETURNS bool LANGUAGE sql
  AS $$SELECT value = 'on' FROM gs_catalog.gs_parameters WHERE name = 'standby'$$;
CREATE FUNCTION gs_catalog.pg_current_xlog_location() RETURNS text LANGUAGE sql
  AS $$SELECT value FROM gs_catalog.gs_parameters WHERE name = 'wal_end'$$;
CREATE FUNCTION gs_catalog.pg_current_xlog_insert_location() RETURNS text LANGUAGE sql
  AS $$SELECT value FROM gs_catalog.gs_parameters WHERE name = 'wal_end'$$;
CREATE FUNCTION gs_catalog.pg_last_xlog_receive_location() RETURNS text LANGUAGE sql
  AS $$SELECT value FROM gs_catalog.gs_parameters WHERE name = 'receive_end'$$;
CREATE FUNCTION gs_catalog.pg_last_xlog_replay_location() RETURNS text LANGUAGE sql
  AS $$SELECT value FROM gs_catalog.gs_parameters WHERE name = 'wal_end'$$;
CREATE FUNCTION gs_catalog.pg_encoding_to_char(int4) RETURNS name LANGUAGE sql
  AS $$SELECT pg_catalog.pg_encoding_to_char($1)$$;
CREATE FUNCTION gs_catalog.getdatabaseencoding() RETURNS name LANGUAGE sql
  AS $$SELECT value::name FROM gs_catalog.gs_parameters WHERE name = 'encoding'$$;
CREATE FUNCTION gs_catalog.current_setting(text) RETURNS text LANGUAGE plpgsql AS $$
  DECLARE found_value text;
  BEGIN
    SELECT setting INTO found_value FROM gs_catalog.pg_settings
      WHERE lower(name) = lower($1);
    IF NOT FOUND THEN
      RAISE EXCEPTION 'unrecognized configuration parameter "%"', $1 USING ERRCODE = '42704';
    END IF;
    RETURN found_value;
  END $$;
CREATE TABLE gs_catalog.gs_forbidden (oid oid);
CREATE FUNCTION gs_catalog.has_schema_privilege(oid, text) RETURNS bool LANGUAGE sql
  AS $$SELECT true$$;
CREATE FUNCTION gs_catalog.has_table_privilege(oid, text) RETURNS bool LANGUAGE sql
  AS $$SELECT NOT EXISTS (SELECT 1 FROM gs_catalog.gs_forbidden WHERE oid = $1)$$;
CREATE TABLE gs_catalog.gs_spellings (oid oid PRIMARY KEY, spelling text);
CREATE FUNCTION gs_catalog.format_type(oid, int4) RETURNS text LANGUAGE sql AS $$
  SELECT CASE WHEN $1 >= 16384 THEN
      (SELECT spelling FROM gs_catalog.gs_spellings WHERE oid = $1)
    WHEN $1 IN (5545, 9003, 88, 86, 90) THEN
      (SELECT CASE typname WHEN 'int1' THEN 'tinyint' ELSE typname::text END
       FROM gs_catalog.pg_type WHERE oid = $1)
    WHEN $1 = 3969 THEN 'nvarchar2' || CASE WHEN $2 > 4 THEN '(' || $2 - 4 || ')' ELSE '' END
    ELSE pg_catalog.format_type($1, $2) END $$;
"""
_TYPE_COLUMNS: Final = (
    "oid, typname, typnamespace, typowner, typlen, typbyval, typtype, typcategory, typisdefined, "
    "typdelim, typrelid, typelem, typarray, typnotnull, typbasetype, typtypmod, typndims"
)
_SLOTS: Final = """
CREATE TABLE gs_catalog.slot_rows (slot_name text, plugin text, slot_type text, datoid oid,
  database name, active bool, oldest xid, catalog_xmin xid, restart_lsn text,
  dummy_standby bool{columns});
CREATE VIEW gs_catalog.pg_replication_slots AS SELECT slot_name, plugin, slot_type, datoid,
  database, active, oldest AS xmin, catalog_xmin, restart_lsn, dummy_standby{shown}
  FROM gs_catalog.slot_rows
"""
_STATUS: Final = """
CREATE TABLE gs_catalog.parallel_status (slot_name text, parallel_decode_num int4,
  read_change_queue_length text, decode_change_queue_length text{lsn}{time});
CREATE FUNCTION gs_catalog.gs_get_parallel_decode_status()
  RETURNS SETOF gs_catalog.parallel_status LANGUAGE sql
  AS $$SELECT * FROM gs_catalog.parallel_status$$
"""
_NAMES: Final = re.compile(r"\bpg_catalog\s*\.\s*(\w+)", re.IGNORECASE)
_AREA: Final = re.compile(
    r"pg_logical_get_area_changes\('([^']+)', '([^']+)', NULL, 'mppdb_decoding', NULL\)"
)
_CURRENT_USER: Final = re.compile(r"\bcurrent_user\b")
# What an openGauss of any version lacks, and a PostgreSQL would answer.
_ABSENT: Final = re.compile(
    r"\b(pg_current_wal_lsn|pg_publication_tables|attgenerated|attidentity|confirmed_flush_lsn|"
    r"wal_status|active_pid|pg_logical_emit_message|indnkeyatts)\b"
)


class Catalogue:
    """The catalogue of one simulated server, in a database of its own.

    Args:
        postgres: a running server.
        types_of: a database whose own types are in the catalogue too.
    """

    def __init__(self, postgres: Postgres, types_of: Database | None = None) -> None:
        self._types_of = types_of
        self._postgres = postgres
        self._name = f"gs_catalogue_{next(_NUMBERS)}"
        self._lock = threading.Lock()
        self._session: psycopg.Connection[tuple[object, ...]] | None = None
        self._schema_version = -1
        self._version = ""
        self._shadows: frozenset[str] = frozenset()
        self._held: dict[str, list[tuple[object, ...]]] = {}
        self._wal_end = 0

    def close(self) -> None:
        """Drop the database."""
        if self._session is not None:
            self._session.close()
            self._session = None
            self._postgres.execute(f'DROP DATABASE IF EXISTS "{self._name}" WITH (FORCE)')

    def query(
        self,
        server: "GaussServer",
        settings: Mapping[str, str],
        text: str,
        csn: int | None = None,
        asker: Backend | None = None,
    ) -> tuple[list[tuple[str, int]], list[tuple[str | None, ...]], str]:
        """Answer a query.

        Args:
            server: whose catalogue it is.
            settings: of the session.
            text: the query.
            csn: of the snapshot of the session's transaction, or None.
            asker: the session that asks.

        Returns:
            Name and type OID of each column, rows of texts, command tag.

        Raises:
            LookupError: the catalogue does not know what it asks for.
        """
        absent = _ABSENT.search(text)
        if absent:
            raise LookupError(f'column or relation "{absent[1]}" does not exist')
        with self._lock:
            session = self._open(server)
            self._refresh(session, server, settings, asker, text)
            if "pg_current_xlog" in text.lower():
                server.told_lsns.add(self._wal_end)
            self._write_files(session, server, csn)
            self._write_area(session, server, settings, text)
            asked = _CURRENT_USER.sub(
                sql.Literal(settings.get("session_authorization", "")).as_string(session), text
            )
            result = session.pgconn.exec_(self._rewrite(asked).encode())
            if result.status != pq.ExecStatus.TUPLES_OK:
                message = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b"no rows"
                session.pgconn.exec_(b"ROLLBACK")
                raise LookupError(f"{message.decode()} (in: {' '.join(text.split())})")
        columns = [
            ((result.fname(i) or b"").decode(), _TYPES.get(result.ftype(i), result.ftype(i)))
            for i in range(result.nfields)
        ]
        rows = [
            tuple(
                None if value is None else value.decode()
                for value in (result.get_value(at, i) for i in range(result.nfields))
            )
            for at in range(result.ntuples)
        ]
        return columns, rows, f"SELECT {len(rows)}"

    def _rewrite(self, text: str) -> str:
        return _NAMES.sub(
            lambda match: (
                f"{_SCHEMA}.{match[1]}" if match[1].lower() in self._shadows else match[0]
            ),
            text,
        )

    # --- content -----------------------------------------------------------------------

    def _open(self, server: "GaussServer") -> psycopg.Connection[tuple[object, ...]]:
        if self._session is None:
            self._postgres.execute(f'CREATE DATABASE "{self._name}" TEMPLATE template0')
            self._session = self._postgres.connect(self._name)
            session = self._session
            session.execute(_TABLES)
            session.execute(gaussviews.TABLES)
            self._insert_types(session)
            self._copy_types(session)
            self._follow_version(session, server.profile)
            names = session.execute(
                "SELECT relname::text FROM pg_catalog.pg_class WHERE relnamespace = %s::regnamespace "
                "UNION SELECT proname::text FROM pg_catalog.pg_proc WHERE pronamespace = %s::regnamespace",
                (_SCHEMA, _SCHEMA),
            )
            self._shadows = frozenset(str(name) for (name,) in names)
            session.execute(f"SET search_path = {_SCHEMA}, pg_catalog")
        elif self._version != server.profile.name:
            self._follow_version(self._session, server.profile)
        self._version = server.profile.name
        return self._session

    def _follow_version(
        self, session: psycopg.Connection[tuple[object, ...]], profile: Profile
    ) -> None:
        """Give the views the columns of a version."""
        for table in ("slot_rows", "parallel_status"):
            self._held.pop(table, None)
        session.execute(
            "DROP TABLE IF EXISTS gs_catalog.slot_rows, gs_catalog.parallel_status CASCADE"
        )
        extra = [("confirmed_flush", "text")] * profile.has_confirmed_flush
        extra += [("confirmed_csn", "xid8")] * profile.is_commercial
        session.execute(
            sql.SQL(_SLOTS).format(
                columns=sql.SQL("".join(f", {name} {kind}" for name, kind in extra)),
                shown=sql.SQL("".join(f", {name}" for name, _ in extra)),
            )
        )
        session.execute(
            sql.SQL(_STATUS).format(
                lsn=sql.SQL(
                    ", reader_lsn text, working_txn_cnt int8, working_txn_memory int8"
                    if profile.status_columns > 4
                    else ""
                ),
                time=sql.SQL(", decoded_time timestamptz" if profile.status_columns > 7 else ""),
            )
        )

    @staticmethod
    def _insert_types(session: psycopg.Connection[tuple[object, ...]]) -> None:
        for oid, (name, _, size, category) in OWN_TYPES.items():
            session.execute(
                "INSERT INTO gs_catalog.pg_type VALUES "
                "(%s, %s, 11, 10, %s, false, 'b', %s, true, ',', 0, 0, 0, false, 0, -1, 0)",
                (oid, name, size, category),
            )

    def _copy_types(self, session: psycopg.Connection[tuple[object, ...]]) -> None:
        """Take over the types, their labels and schemas that somebody created."""
        if self._types_of is None:
            return
        for table, columns, where in (
            ("pg_type", _TYPE_COLUMNS, "oid >= 16384"),
            ("pg_enum", "oid, enumtypid, enumsortorder, enumlabel", "true"),
            ("pg_namespace", "oid, nspname, nspowner", "oid >= 16384"),
            ("gs_spellings", "oid, format_type(oid, NULL)", "oid >= 16384"),
        ):
            source = "pg_type" if table == "gs_spellings" else table
            query = f"SELECT {columns} FROM pg_catalog.{source} WHERE {where}"
            for row in self._types_of.execute(query):
                marks = sql.SQL(", ").join(sql.Placeholder() * len(row))
                name = sql.Identifier(_SCHEMA, table)
                session.execute(sql.SQL("INSERT INTO {} VALUES ({})").format(name, marks), row)

    def _refresh(
        self,
        session: psycopg.Connection[tuple[object, ...]],
        server: "GaussServer",
        settings: Mapping[str, str],
        asker: Backend | None,
        text: str,
    ) -> None:
        """Bring the tables that a query may ask for up to what the server is now."""
        store, how = server.store, server.behaviour
        if self._schema_version != store.schema_version:
            with store.changed:
                self._schema_version = store.schema_version
                tables = list(store.tables.values())
            self._write_tables(session, tables)
        with server.lock:
            slots = list(server.slots.values())
        self._wal_end = server.wal_end
        status = [
            _status_row(slot, server) for slot in slots if slot.is_active and slot.decoders > 1
        ]
        self._replace(session, {
            **dict(gaussviews.rows(server, asker, text)),
            "gs_parameters": [
                ("version", server.profile.version), ("database", server.database),
                ("standby", "on" if how.is_standby else "off"), ("encoding", how.encoding),
                ("wal_end", lsn_text(self._wal_end)),
                ("receive_end", lsn_text(self._wal_end) if how.is_receiving else None),
                ("skew_us", str(store.activity.skew_us)),
                ("pid", str(asker.pid if asker else 0)),
            ],
            "pg_database": [
                (16384, server.database, 10, _ENCODINGS[how.encoding], "C", "C", how.compatibility)
            ],
            "pg_settings": [
                (name, value, None, "user", "default", None, value) for name, value in settings.items()
            ],
            "pg_roles": [
                (20000 + at, user.name, *(right in user.rights for right in _RIGHTS),
                 user.can_replicate, True, user.connection_limit, None)
                for at, user in enumerate(server.users.values())
            ],
            "slot_rows": [_slot_row(s, server) for s in slots],
            "parallel_status": status,
        })  # fmt: skip

    def _write_files(
        self,
        session: psycopg.Connection[tuple[object, ...]],
        server: "GaussServer",
        csn: int | None,
    ) -> None:
        """Say where the rows of tables are: as a snapshot knows it, and as it is."""
        store = server.store
        with store.changed:
            files = [
                (
                    t.oid,
                    store.file_node(t.oid, csn),
                    store.file_node(t.oid),
                    store.changed_by[t.oid],
                )
                for t in store.tables.values()
            ]
            forbidden = [
                (t.oid,) for t in store.tables.values() if (t.schema, t.name) in server.forbidden
            ]
        self._replace(session, {"gs_files": files, "gs_forbidden": forbidden})

    def _write_area(
        self,
        session: psycopg.Connection[tuple[object, ...]],
        server: "GaussServer",
        settings: Mapping[str, str],
        text: str,
    ) -> None:
        """Say what the stretch of the WAL holds that a query asks for."""
        asked = _AREA.search(text)
        if asked is None:
            return
        user = server.users.get(settings.get("session_authorization", ""))
        may = user is not None and (user.can_replicate or "rolsystemadmin" in user.rights)
        if not may or server.behaviour.refuses_area:
            raise LookupError("must be system admin or replication role to use replication slots")
        first, upto = (lsn_of(position) for position in asked.groups())
        listed = gaussarea.area(server, first, upto)
        self._replace(session, {"gs_area": [(at, *row) for at, row in enumerate(listed)]})

    def select(
        self,
        columns: Mapping[str, str],
        rows: Sequence[Sequence[tuple[str | None, str | None]]],
        wanted: str,
        condition: str | None,
    ) -> list[tuple[str | None, ...]]:
        """Answer a query on a table of the server's.

        Args:
            columns: PostgreSQL's type by name.
            rows: per value, as PostgreSQL prints it and as the server does.
            wanted: the select list; it sees what the server prints.
            condition: it sees values of their types.

        Raises:
            LookupError: it cannot be answered.
        """
        with self._lock:
            session = self._session
            assert session is not None
            _fill(session, "gs_typed", columns, [[value[0] for value in row] for row in rows])
            texts = dict.fromkeys(columns, "text")
            _fill(session, "gs_text", texts, [[value[1] for value in row] for row in rows])
            where = f"WHERE {condition}" if condition else ""
            text = (
                f"SELECT {wanted} FROM gs_text WHERE gs_number IN (SELECT gs_number FROM gs_typed "
                f"{where})"
            )
            return self._rows(session, text)

    def summed(
        self, columns: Mapping[str, str], rows: Sequence[Sequence[str | None]], text: str
    ) -> list[tuple[str | None, ...]]:
        """Answer a query on ``gs_typed``, which has these rows.

        Raises:
            LookupError: it cannot be answered.
        """
        with self._lock:
            session = self._session
            assert session is not None
            session.execute("SET timezone = 'UTC'")
            _fill(session, "gs_typed", columns, rows)
            return self._rows(session, text)

    def _rows(
        self, session: psycopg.Connection[tuple[object, ...]], text: str
    ) -> list[tuple[str | None, ...]]:
        result = session.pgconn.exec_(self._rewrite(text).encode())
        if result.status != pq.ExecStatus.TUPLES_OK:
            message = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b"no rows"
            raise LookupError(message.decode())
        return [
            tuple(
                None if (value := result.get_value(at, i)) is None else value.decode()
                for i in range(result.nfields)
            )
            for at in range(result.ntuples)
        ]

    def _replace(
        self,
        session: psycopg.Connection[tuple[object, ...]],
        tables: Mapping[str, Sequence[tuple[object, ...]]],
    ) -> None:
        """Have tables hold some rows; most tables hold them already."""
        changed = {
            name: list(of) for name, of in tables.items() if self._held.get(name) != list(of)
        }
        if not changed:
            return
        statements = []  # in one text: each statement of its own costs a turn to the server and back
        for table, rows in changed.items():
            name = sql.Identifier(_SCHEMA, table)
            statements.append(sql.SQL("DELETE FROM {}").format(name))
            if rows:
                lists = [sql.SQL("({})").format(sql.SQL(", ").join(row)) for row in rows]
                values = sql.SQL(", ").join(lists)
                statements.append(sql.SQL("INSERT INTO {} VALUES {}").format(name, values))
        session.execute(sql.SQL("; ").join(statements))
        self._held.update(changed)

    def _write_tables(
        self, session: psycopg.Connection[tuple[object, ...]], tables: list[Table]
    ) -> None:
        for schema in sorted({table.schema for table in tables}):
            session.execute(
                "INSERT INTO gs_catalog.pg_namespace SELECT 900000 + count(*), %s, 10 "
                "FROM gs_catalog.pg_namespace HAVING bool_and(nspname <> %s)",
                (schema, schema),
            )
        found = session.execute("SELECT nspname::text, oid::int8 FROM gs_catalog.pg_namespace")
        oids = {str(name): oid for name, oid in found}
        self._replace(session, {
            "gs_class": [
                (
                    t.oid, t.name, oids[t.schema], 0, 10, "r", "p", len(t.columns), bool(t.key), "n",
                    t.identity,
                    [*["storage_type=ustore"] * t.is_ustore, *t.options] or None,
                )
                for t in tables
            ],
            "gs_partition": [
                (t.oid * 10 + 9, t.name, "r", t.oid, "i", 0) for t in tables if t.is_by_interval
            ],
            "pg_attribute": [
                (
                    t.oid, c.name, c.type_oid, -1, c.number, 0, c.modifier, "p", c.is_not_null,
                    c.is_generated, False, 0,
                )
                for t in tables
                for c in t.columns
            ],
            "pg_description": [
                (t.oid, 1259, number, text) for t in tables for number, text in t.comments
            ],
            "pg_attrdef": [
                (t.oid * 100 + c.number, t.oid, c.number, "", "", "s")
                for t in tables
                for c in t.columns
                if c.is_generated
            ],
            "pg_index": [row for table in tables for row in _index_rows(table)],
            "pg_constraint": [
                (t.oid * 10 + 5, f"{t.name[:50]}_pkey", oids[t.schema], "p", t.oid, t.oid * 10,
                 _numbers(t, t.key))
                for t in tables
                if t.key
            ],
        })  # fmt: skip


def _fill(
    session: psycopg.Connection[tuple[object, ...]],
    name: str,
    columns: Mapping[str, str],
    rows: Sequence[Sequence[str | None]],
) -> None:
    """Make a table of rows, numbered in ``gs_number``."""
    table = sql.Identifier(name)
    session.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(table))
    listed = [
        sql.SQL("{} {}").format(sql.Identifier(column), sql.SQL(kind))
        for column, kind in columns.items()
    ]
    held = sql.SQL(", ").join([sql.SQL("gs_number int8"), *listed])
    session.execute(sql.SQL("CREATE TEMP TABLE {} ({})").format(table, held))
    with session.cursor() as cursor, cursor.copy(sql.SQL("COPY {} FROM STDIN").format(table)) as to:
        for number, row in enumerate(rows):
            to.write_row((number, *row))


def _numbers(table: Table, names: tuple[str, ...]) -> list[int]:
    numbers = {column.name: column.number for column in table.columns}
    return [numbers[name] for name in names]


def _index_rows(table: Table) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for at, (names, is_primary) in enumerate(((table.key, True), (table.index_key, False))):
        if names:
            numbers = " ".join(map(str, _numbers(table, names)))
            is_identity = not is_primary and table.identity == "i"
            rows.append(
                (table.oid * 10 + at, table.oid, len(names), True, is_primary, True, True,
                 not table.is_deferrable, True, numbers, is_identity)
            )  # fmt: skip
    return rows


def _slot_row(slot: "Slot", server: "GaussServer") -> tuple[object, ...]:
    row: list[object] = [
        slot.name, slot.plugin, "physical" if slot.is_physical else "logical", 16384, slot.database,
        slot.is_active, None, "9000", lsn_text(slot.restart_lsn), False,
    ]  # fmt: skip
    if server.profile.has_confirmed_flush:
        row.append(None if slot.confirmed_csn else lsn_text(slot.confirmed_lsn))
    if server.profile.is_commercial:
        row.append(str(slot.confirmed_csn) if slot.confirmed_csn else None)
    return tuple(row)


def _status_row(slot: "Slot", server: "GaussServer") -> tuple[object, ...]:
    queues = ", ".join(f"queue{index}: 0" for index in range(slot.decoders))
    row: list[object] = [slot.name, slot.decoders, queues, queues]
    if server.profile.status_columns > 4:
        row += [lsn_text(server.wal_end), 0, 0]
    if server.profile.status_columns > 7:
        row.append("2024-03-14 12:31:12.098179+00")
    return tuple(row)
