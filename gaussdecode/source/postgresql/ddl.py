"""Event triggers of PostgreSQL that write each DDL command into the WAL as one logical message.

Logical decoding sends no DDL. The triggers, all with one function in a schema of their own, describe
a command as JSON when it has ended, and emit that as a message of its transaction: it is in the
stream between the rows around it, and is rolled back with them. `sql_drop` and `table_rewrite` come
before `ddl_command_end` of the same command; they leave what they saw in a setting of the transaction.

The function must not disturb the user's command:

- it runs as the user, reads catalogues alone, and waits for no lock;
- an error while it describes a command ends in the message as its SQLSTATE. The message itself is
  emitted outside of that handler: a block with a handler is a subtransaction, and one that writes
  takes a transaction number. Sixty-five in one transaction slow down the whole server;
- the size of a message is bounded, and so are all lists in it. So is what it reads of a long query.

Others' event triggers may run commands within a command. What events of one command leave for its end is kept
by the call stack, so that a command within it does not take that.

In a transaction of REPEATABLE READ or SERIALIZABLE the catalogue shows columns as they were when it began.
Where a table has others by now, its columns are not described.

The triggers are ALWAYS enabled: DDL in a session with session_replication_role = replica changes
tables as any other does.
"""

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator
from typing import Final

from gaussdecode.errors import SourceError, SourceRefusedError
from gaussdecode.source.pinned import SETTINGS
from gaussdecode.source.postgresql.connection import Connection

VERSION: Final = 3
"""Of what is installed; the `version` of a message is that of its format."""
_SCHEMA: Final = "gaussdecode"
_TRIGGERS: Final = {
    f"gaussdecode_{event}": event for event in ("ddl_command_end", "sql_drop", "table_rewrite")
}
_FUNCTION: Final = f"{_SCHEMA}.ddl_event"
_COMMENT: Final = "DDL capture of gaussdecode, version "
_PRINTED: Final = frozenset(
    {
        "DateStyle",
        "IntervalStyle",
        "TimeZone",
        "extra_float_digits",
        "bytea_output",
        "quote_all_identifiers",
    }
)
_PINNED: Final = {
    **{of.name: of.value for of in SETTINGS if of.name in _PRINTED},
    "jit": "off",
    "lock_timeout": "1s",
}
"""Settings that decide how values and names are printed: a session may have others than the stream. Without JIT, as
compiling the queries takes most of a second for each command. And with an end where somebody has locked the
catalogue itself, as REINDEX SYSTEM does."""
_CONFIG: Final = ["search_path=pg_catalog, pg_temp", *(f"{k}={v}" for k, v in _PINNED.items())]
_ENABLED: Final = {"O": "origin", "A": "always", "R": "replica", "D": "disabled"}

_DENIED: Final = "42501"
_READ_ONLY: Final = "25006"
_LOCKED: Final = "55P03"
_IN_USE: Final = "2BP01"

# Whether a transaction with an old snapshot sees the newest rows of the table `c`.
_IS_NEWEST: Final = """(sees_newest OR (c.xmax::text = '0' AND c.relnatts = (
                    SELECT count(*) FROM pg_attribute a
                    WHERE a.attrelid = c.oid AND a.attnum > 0 AND a.xmax::text = '0')))"""
# Of the table `c`.
_COLUMNS: Final = """(
                    SELECT jsonb_agg(jsonb_build_object('attribute_number', a.attnum,
                        'name', a.attname, 'type', format_type(a.atttypid, a.atttypmod),
                        'type_oid', a.atttypid::int8, 'type_modifier', a.atttypmod,
                        'not_null', a.attnotnull, 'default', pg_get_expr(d.adbin, d.adrelid),
                        'generated', nullif(a.attgenerated::text, ''),
                        'identity', nullif(a.attidentity::text, ''), 'row_xid', a.xmin::text::int8,
                        'key_position', (SELECT k.position FROM pg_index x,
                            unnest(x.indkey::int2[]) WITH ORDINALITY k(attnum, position)
                            WHERE x.indrelid = a.attrelid AND x.indisprimary
                                AND k.attnum = a.attnum AND k.position <= x.indnkeyatts))
                        ORDER BY a.attnum)
                    FROM pg_attribute a
                    LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
                    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
                        AND (sees_newest OR a.xmax::text = '0'))"""
# Values of rows from before a column, where they are not in the rows. Of a table with partitions each of
# these has its own.
_CONSTANTS: Final = """(
                    SELECT coalesce(jsonb_object_agg(a.attnum, (a.attmissingval::text::text[])[1]), '{}')
                    FROM pg_attribute a
                    WHERE a.attrelid = c.oid AND a.attnum > 0 AND a.atthasmissing
                        AND (sees_newest OR a.xmax::text = '0'))"""
_BODY: Final = (
    r"""
DECLARE
    max_objects CONSTANT int := 1000;
    max_tables CONSTANT int := 100;        -- of them those with their columns
    max_statement CONSTANT int := 1048576; -- characters
    short CONSTANT int := 1024;            -- characters, where the same text came already
    max_bytes CONSTANT int := 16777216;
    sees_newest CONSTANT bool := current_setting('transaction_isolation') LIKE 'read%';
    frame text;        -- what called the command; another one within it has another
    state jsonb;       -- what commands that have not ended left, by frame, and the text that came already
    noted jsonb;       -- what events before the end of this command left
    seen record;
    query text;
    kept int;
    content bytea;
BEGIN
    IF current_setting('wal_level') <> 'logical' THEN
        RETURN;
    END IF;
    BEGIN
        GET DIAGNOSTICS frame = PG_CONTEXT;
        frame := hashtextextended(frame, 0);
        state := coalesce(nullif(current_setting('gaussdecode.ddl', true), ''), '{}')::jsonb;
        state := CASE jsonb_typeof(state) WHEN 'object' THEN state ELSE '{}' END;
        noted := coalesce(state -> frame, '{}');
        IF tg_event = 'sql_drop' THEN
            SELECT count(*) AS total, bool_or(d.original) AS is_meant, jsonb_agg(jsonb_build_object(
                'object_type', d.object_type, 'schema_name', d.schema_name, 'object_name', d.object_name,
                'object_identity', d.object_identity, 'oid', d.objid::int8,
                'attribute_number', nullif(d.objsubid, 0), 'original', d.original) ORDER BY d.n)
                FILTER (WHERE d.n <= max_objects) AS objects INTO seen
            FROM (
                SELECT o.*, row_number() OVER (ORDER BY o.original DESC, o.normal DESC, o.ordinality) AS n
                FROM pg_event_trigger_dropped_objects() WITH ORDINALITY o
                WHERE NOT o.is_temporary AND (o.original OR o.normal OR o.classid = 'pg_class'::regclass)
                    AND coalesce(o.schema_name, '') NOT IN ('pg_toast', 'gaussdecode')) d;
            IF seen.is_meant THEN  -- PostgreSQL 14 calls defaults of temporary tables not temporary
                noted := noted || jsonb_build_object('dropped', seen.objects, 'dropped_count', seen.total);
                PERFORM set_config('gaussdecode.ddl', (state || jsonb_build_object(frame, noted))::text, true);
            END IF;
            RETURN;
        ELSIF tg_event = 'table_rewrite' THEN
            SELECT c.oid::regclass::text AS identity, c.oid::int8 AS oid INTO seen FROM pg_class c
                WHERE c.oid = pg_event_trigger_table_rewrite_oid() AND c.relpersistence <> 't';
            IF FOUND THEN
                kept := coalesce((noted ->> 'rewritten_count')::int, 0) + 1;
                noted := noted || jsonb_build_object('rewritten_count', kept);
                IF kept <= max_tables THEN
                    noted := noted || jsonb_build_object('rewritten', coalesce(noted -> 'rewritten', '[]')
                        || jsonb_build_object('object_identity', seen.identity, 'oid', seen.oid,
                            'reason', pg_event_trigger_table_rewrite_reason()));
                END IF;
                PERFORM set_config('gaussdecode.ddl', (state || jsonb_build_object(frame, noted))::text, true);
            END IF;
            RETURN;
        END IF;

        SELECT count(*) AS total, jsonb_agg(described.object ORDER BY described.n)
            FILTER (WHERE described.n <= max_objects) AS objects INTO seen
        FROM (
            SELECT e.n, jsonb_build_object('command_tag', e.command_tag, 'object_type', e.object_type,
                'schema_name', e.schema_name, 'object_identity', e.object_identity,
                'oid', e.objid::int8, 'replica_identity', c.relreplident::text, 'row_xid', c.xmin::text::int8,
                'object_name', coalesce(c.relname, CASE WHEN i.name LIKE '"%'
                    THEN replace(substr(i.name, 2, length(i.name) - 2), '""', '"') ELSE i.name END),
                'columns', CASE WHEN e.n <= max_tables AND c.relkind IN ('r', 'p', 'f') AND %IS_NEWEST%
                    THEN coalesce(%COLUMNS%, '[]') END,
                'constants', CASE WHEN e.n <= max_tables AND c.relkind = 'r' AND %IS_NEWEST%
                    THEN %CONSTANTS% END,
                -- Tables whose columns change with these: children, partitions, tables OF a type. No others: there
                -- may be thousands, without a lock, and from PostgreSQL 17 on pg_get_expr would wait for it.
                'descendants', CASE WHEN tg_tag LIKE 'ALTER%' THEN (
                    WITH RECURSIVE below AS (
                        SELECT i.inhrelid AS oid FROM pg_inherits i WHERE i.inhparent = c.oid
                        UNION SELECT o.oid FROM pg_class o
                            WHERE c.relkind = 'c' AND o.reloftype = c.reltype
                        UNION SELECT i.inhrelid FROM below b JOIN pg_inherits i ON i.inhparent = b.oid),
                    numbered AS (SELECT b.oid, row_number() OVER (ORDER BY b.oid) AS n FROM below b
                        WHERE EXISTS (SELECT FROM pg_attribute a  -- written by this transaction
                            WHERE a.attrelid = b.oid AND a.attnum > 0 AND age(a.xmin) <= 0))
                    SELECT jsonb_agg(jsonb_build_object('oid', b.oid::int8, 'columns',
                        CASE WHEN b.n <= max_tables AND %IS_NEWEST% THEN %COLUMNS% END) ORDER BY b.n)
                    FROM numbered b LEFT JOIN pg_class c ON c.oid = b.oid
                        AND (sees_newest OR c.xmax::text = '0')
                    WHERE e.n <= max_tables AND b.n <= max_objects + 1) END
            ) AS object
            FROM (
                SELECT f.classid, f.objid, f.objsubid, f.command_tag, f.object_type, f.schema_name,
                    f.object_identity,
                    row_number() OVER (ORDER BY (f.command_tag = tg_tag) DESC, f.ordinality) AS n
                FROM pg_event_trigger_ddl_commands() WITH ORDINALITY f
                WHERE NOT f.in_extension
                    AND coalesce(f.schema_name, '') NOT IN ('pg_temp', 'gaussdecode')) e
            LEFT JOIN pg_class c ON e.classid = 'pg_class'::regclass AND c.oid = e.objid
                AND (sees_newest OR c.xmax::text = '0')  -- an old snapshot sees the row of then, too
            LEFT JOIN LATERAL pg_identify_object(e.classid, e.objid, e.objsubid) i ON c.oid IS NULL
        ) described;
        IF seen.total > 0 OR noted ?| ARRAY['dropped_count', 'rewritten_count', 'error'] THEN
            IF state ->> 'described_at' = statement_timestamp()::text THEN
                kept := short;
                query := state ->> 'query';
            ELSE
                kept := max_statement;
                query := left(current_query(), kept + 1);
            END IF;
            state := (state - frame - '{described_at,query}'::text[]) || CASE WHEN octet_length(query) > short
                THEN jsonb_build_object('described_at', statement_timestamp()::text,
                    'query', left(query, short + 1))
                ELSE '{}' END;
            PERFORM set_config('gaussdecode.ddl', CASE WHEN state <> '{}' THEN state::text ELSE '' END, true);
            noted := jsonb_build_object('version', 1, 'command_tag', tg_tag)
                || coalesce(seen.objects -> 0, (noted #> '{dropped,0}') - '{original,attribute_number}'::text[], '{}')
                || jsonb_build_object('command_tag', tg_tag, 'object_count', seen.total,
                    'statement', CASE WHEN tg_tag ~ '^(CREATE|ALTER) (USER MAPPING|SUBSCRIPTION|SERVER)$'
                        THEN NULL ELSE left(query, kept) END,
                    'statement_is_cut', length(query) > kept)
                || CASE WHEN seen.total > 1 THEN jsonb_build_object('objects', seen.objects)
                    ELSE '{}' END
                || noted;
            content := convert_to(noted::text, 'UTF8');
            IF length(content) > max_bytes THEN
                content := convert_to((noted - '{columns,constants,descendants,objects,dropped,rewritten}'::text[]
                    || '{"is_cut": true}')::text, 'UTF8');
            END IF;
            IF NOT EXISTS (SELECT FROM pg_proc p WHERE p.pronamespace = 'pg_catalog'::regnamespace
                AND p.proname = 'pg_logical_emit_message' AND p.proargtypes[2] = 'bytea'::regtype
                AND has_function_privilege(p.oid, 'EXECUTE'))
            THEN
                content := NULL;
                RAISE WARNING 'gaussdecode has not recorded this %: role % may not execute '
                    'pg_logical_emit_message', tg_tag, current_user;
            END IF;
        END IF;
    EXCEPTION WHEN OTHERS THEN
        noted := jsonb_build_object('error', sqlstate);
        state := coalesce(state, '{}') - coalesce(frame, '');
        IF tg_event = 'ddl_command_end' THEN
            content := convert_to((jsonb_build_object('version', 1, 'command_tag', tg_tag) || noted)::text, 'UTF8');
        ELSE
            state := state || jsonb_build_object(coalesce(frame, ''), noted);
        END IF;
        PERFORM set_config('gaussdecode.ddl', state::text, true);
    END;
    IF content IS NOT NULL THEN
        PERFORM pg_logical_emit_message(true, 'gaussdecode.ddl', content);
    END IF;
END
""".replace("%COLUMNS%", _COLUMNS)
    .replace("%CONSTANTS%", _CONSTANTS)
    .replace("%IS_NEWEST%", _IS_NEWEST)
)


_BEGIN: Final = (
    "BEGIN",
    "SET LOCAL lock_timeout = '2s'",
    "SET LOCAL client_min_messages = warning",
    *(f"DROP EVENT TRIGGER IF EXISTS {name}" for name in _TRIGGERS),
)
_CREATE_FUNCTION: Final = (
    f"CREATE OR REPLACE FUNCTION {_FUNCTION}() RETURNS event_trigger LANGUAGE plpgsql\n"
    "SET search_path = pg_catalog, pg_temp\n"
    + "".join(f"SET {name} = '{value}'\n" for name, value in _PINNED.items())
    + f"AS $gaussdecode${_BODY}$gaussdecode$"
)
_INSTALL: Final = (
    *_BEGIN,
    f"CREATE SCHEMA IF NOT EXISTS {_SCHEMA}",
    f"COMMENT ON SCHEMA {_SCHEMA} IS '{_COMMENT}{VERSION}'",
    _CREATE_FUNCTION,
    *(
        f"CREATE EVENT TRIGGER {name} ON {event} EXECUTE FUNCTION {_FUNCTION}()"
        for name, event in _TRIGGERS.items()
    ),
    *(f"ALTER EVENT TRIGGER {name} ENABLE ALWAYS" for name in _TRIGGERS),
    "COMMIT",
)
_REMOVE: Final = (
    *_BEGIN,
    f"DROP FUNCTION IF EXISTS {_FUNCTION}()",
    f"DROP SCHEMA IF EXISTS {_SCHEMA}",
    "COMMIT",
)
_STATE: Final = f"""
    SELECT pg_catalog.obj_description(n.oid, 'pg_namespace'), pg_catalog.pg_get_userbyid(p.proowner),
        p.prosrc, pg_catalog.array_to_json(p.proconfig), p.prosecdef, pg_catalog.current_setting('wal_level'),
        pg_catalog.current_setting('event_triggers', true), n.oid
    FROM (SELECT) one LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = '{_SCHEMA}'
    LEFT JOIN pg_catalog.pg_proc p ON p.pronamespace = n.oid AND p.proname = 'ddl_event'
"""  # noqa: S608
_STATE_OF_TRIGGERS: Final = f"""
    SELECT t.evtname, t.evtevent, t.evtenabled, t.evtfoid = pg_catalog.to_regproc('{_FUNCTION}'),
        t.evttags IS NULL FROM pg_catalog.pg_event_trigger t WHERE t.evtname IN
        ({", ".join(f"'{name}'" for name in _TRIGGERS)}) ORDER BY 1
"""  # noqa: S608

_IS_RECORDING: Final = f"""
    SELECT count(*) FROM pg_catalog.pg_event_trigger t JOIN pg_catalog.pg_proc p ON p.oid = t.evtfoid
    WHERE t.evtname IN ({", ".join(f"'{name}'" for name in _TRIGGERS)}) AND t.evtenabled = 'A'
        AND t.evttags IS NULL AND t.evtname = 'gaussdecode_' || t.evtevent
        AND pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(p.prosrc, 'UTF8')), 'hex')
            = '{hashlib.sha256(_BODY.encode()).hexdigest()}'
        AND coalesce(pg_catalog.current_setting('event_triggers', true), 'on') = 'on'
"""  # noqa: S608


@dataclasses.dataclass(frozen=True, slots=True)
class DdlTriggers:
    """What is installed of the triggers in a database.

    Attributes:
        version: the version that was installed; None where nothing says it.
        owner: role that owns the function; None without one.
        triggers: how each trigger is enabled, by its name.
        differences: what is otherwise than `install` makes it.
        hindrances: settings of the server that keep the triggers from working.
        is_there: something is there, be it a part.
    """

    version: int | None
    owner: str | None
    triggers: dict[str, str]
    differences: tuple[str, ...]
    hindrances: tuple[str, ...]
    is_there: bool


def install_sql() -> str:
    """One transaction that installs the triggers, or brings those of an earlier version up to date."""
    return ";\n".join(_INSTALL) + ";\n"


def remove_sql() -> str:
    """One transaction that removes all of it."""
    return ";\n".join(_REMOVE) + ";\n"


def read_triggers(connection: Connection) -> DdlTriggers:
    """See what is installed.

    Raises:
        SourceError: the server failed.
    """
    (state,) = connection.query(_STATE)
    comment, owner, source, config, is_definer, wal_level, are_on, schema = state
    found = connection.query(_STATE_OF_TRIGGERS)
    said = re.fullmatch(rf"{_COMMENT}(\d+)", comment or "")

    def differences() -> Iterator[str]:
        if said is None or int(said[1]) != VERSION:
            yield f"schema {_SCHEMA} does not say version {VERSION}"
        if source is None:
            yield f"function {_FUNCTION} is missing"
        elif (source, json.loads(config or "[]"), is_definer) != (_BODY, _CONFIG, "f"):
            yield f"function {_FUNCTION} is another one"
        for name in sorted(_TRIGGERS.keys() - {row[0] for row in found}):
            yield f"event trigger {name} is missing"
        for trigger, event, enabled, is_ours, is_of_all in found:
            if (event, is_ours, is_of_all) != (_TRIGGERS[trigger or ""], "t", "t"):
                yield f"event trigger {trigger} is another one"
            if enabled != "A":
                yield f"event trigger {trigger} is enabled as {_ENABLED.get(enabled or '', enabled)}"

    def hindrances() -> Iterator[str]:
        if are_on == "off":
            yield "event_triggers is off: no event trigger fires"
        if wal_level != "logical":
            yield f"wal_level is {wal_level}: the triggers emit nothing"

    return DdlTriggers(
        version=int(said[1]) if said else None,
        owner=owner,
        triggers={row[0] or "": _ENABLED.get(row[2] or "", "unknown") for row in found},
        differences=tuple(differences()),
        hindrances=tuple(hindrances()),
        is_there=bool(found) or source is not None or schema is not None,
    )


def is_recording(connection: Connection) -> bool:
    """Whether the triggers are as this version installs them, and fire.

    Raises:
        SourceError: the server failed.
    """
    ((count,),) = connection.query(_IS_RECORDING)
    return int(count or 0) == len(_TRIGGERS)


def install(connection: Connection) -> None:
    """Install the triggers, in one transaction.

    Raises:
        SourceRefusedError: a right is missing; nothing was changed.
        SourceError: the server failed.
    """
    _run(connection, _INSTALL)


def remove(connection: Connection) -> None:
    """Remove triggers, function and schema, in one transaction.

    Raises:
        SourceRefusedError: a right is missing, or others' objects are in the schema; nothing was changed.
        SourceError: the server failed.
    """
    _run(connection, _REMOVE)


def _run(connection: Connection, statements: tuple[str, ...]) -> None:
    """Run a transaction; the connection of one that failed is closed by its owner."""
    for statement in statements:
        try:
            connection.query(statement)
        except SourceError as error:
            raise _explained(error, " ".join(statement.split()[:4])) from None


def _explained(error: SourceError, what: str) -> SourceError:
    why = {
        _DENIED: "event triggers are made by superusers, and by the role that a managed service allows it "
        "(such as rds_superuser); the schema needs CREATE on the database. What exists is changed by its "
        "owner. Have such a role run what --print shows",
        _READ_ONLY: "this server is a standby, or read-only: run it on the primary",
        _IN_USE: f"schema {_SCHEMA} has other objects: drop or move them first",
    }.get(error.sqlstate or "")
    if error.sqlstate == _LOCKED:
        return SourceError(
            f"{what}: another session has a lock on it; nothing was changed, try again",
            error.sqlstate,
        )
    if why is None:
        return error
    return SourceRefusedError(f"{what}: refused; {why}. Nothing was changed", error.sqlstate)
