"""Commands that change stored rows without a row in the stream, or do not: what is tried, and what is to be said."""

import dataclasses
from collections.abc import Iterable
from typing import Any, Final

from kit.postgres import Database, run

_PLAIN: Final = "CREATE TABLE {t} (id int PRIMARY KEY, k int, note varchar(20))"
_FULL: Final = (
    "CREATE TABLE {t} (id int, k int, note varchar(20)); ALTER TABLE {t} REPLICA IDENTITY FULL"
)
_PARTED: Final = (
    "CREATE TABLE {t} (id int, k int, note varchar(20), PRIMARY KEY (id, k)) PARTITION BY LIST (k);"
    "CREATE TABLE {t}_1 PARTITION OF {t} FOR VALUES IN (1);"
    "CREATE TABLE {t}_2 PARTITION OF {t} FOR VALUES IN (2) PARTITION BY LIST (id);"
    "CREATE TABLE {t}_2d PARTITION OF {t}_2 DEFAULT"
)
_ROWS: Final = (
    "INSERT INTO {t} (id, k, note) SELECT g, 1 + g % 2, 'n' || g FROM generate_series(1, 9) g"
)
_NEXT: Final = "INSERT INTO {t} (id, k) VALUES (51, 2)"
_ENUM: Final = "CREATE TYPE {t}_e AS ENUM ('a', 'b'); "


@dataclasses.dataclass(frozen=True)
class Case:
    """One command.

    Attributes:
        ddl: what changes stored rows, or does not; statements parted by semicolons.
        is_said: the log has to name the table.
        setup: makes the table.
        rows: first ones.
        after: changes of rows, after the command.
        since: first major that knows it.
        is_alone: it cannot stand in a transaction.
        is_doubtful: it changes no row, and cannot be told from what does.
    """

    ddl: str
    is_said: bool = False
    setup: str = _PLAIN
    rows: str = _ROWS
    after: str = _NEXT
    since: int = 14
    is_alone: bool = False
    is_doubtful: bool = False


def _typed(of: str, value: str, setup: str = "") -> dict[str, Any]:  # Any: fields of a case
    """A table with a column ``v`` of a type, and rows with a value in it."""
    return {
        "setup": f"{setup}CREATE TABLE {{t}} (id int PRIMARY KEY, v {of})",
        "rows": f"INSERT INTO {{t}} SELECT g, {value} FROM generate_series(1, 9) g",
        "after": "INSERT INTO {t} SELECT 51, v FROM {t} WHERE id = 1",
    }


def _retyped(old: str, value: str, new: str, *, is_said: bool = True) -> Case:
    ddl = f"ALTER TABLE {{t}} ALTER v TYPE {new}"
    return Case(ddl, is_said, **_typed(old, value))


_ANEW: Final = "DROP TABLE {t}; CREATE TABLE {t} (id int PRIMARY KEY, k int, note varchar(20))"
CASES: Final[dict[str, Case]] = {
    # Partitions of a table that is published as one.
    "part_truncate": Case("TRUNCATE {t}_1", True, _PARTED),
    "part_truncate_below": Case("TRUNCATE {t}_2", True, _PARTED),
    "part_delete_all": Case("DELETE FROM {t}_1", False, _PARTED),
    "part_attach": Case(
        "CREATE TABLE {t}_9 (LIKE {t} INCLUDING ALL); INSERT INTO {t}_9 VALUES (1, 9), (2, 9);"
        "ALTER TABLE {t} ATTACH PARTITION {t}_9 FOR VALUES IN (9)", True, _PARTED),
    "part_attach_empty": Case(
        "CREATE TABLE {t}_9 (LIKE {t} INCLUDING ALL);"
        "ALTER TABLE {t} ATTACH PARTITION {t}_9 FOR VALUES IN (9)", False, _PARTED),
    "part_attach_default": Case(
        "CREATE TABLE {t}_d (LIKE {t} INCLUDING ALL); INSERT INTO {t}_d VALUES (1, 77);"
        "ALTER TABLE {t} ATTACH PARTITION {t}_d DEFAULT", True, _PARTED),
    "part_attach_tree": Case(
        "CREATE TABLE {t}_8 (LIKE {t} INCLUDING ALL) PARTITION BY LIST (id);"
        "CREATE TABLE {t}_81 PARTITION OF {t}_8 DEFAULT; INSERT INTO {t}_8 VALUES (1, 8);"
        "ALTER TABLE {t} ATTACH PARTITION {t}_8 FOR VALUES IN (8)", True, _PARTED),
    "part_new": Case(
        "CREATE TABLE {t}_9 PARTITION OF {t} FOR VALUES IN (9); INSERT INTO {t} VALUES (1, 9)",
        False, _PARTED),
    "part_new_unlogged": Case(
        "CREATE UNLOGGED TABLE {t}_9 PARTITION OF {t} FOR VALUES IN (9); INSERT INTO {t} VALUES (1, 9)",
        True, _PARTED),
    "part_detach": Case("ALTER TABLE {t} DETACH PARTITION {t}_1", True, _PARTED),
    "part_detach_concurrently": Case(
        "ALTER TABLE {t} DETACH PARTITION {t}_1 CONCURRENTLY", True, _PARTED, is_alone=True),
    "part_drop": Case("DROP TABLE {t}_1", True, _PARTED),
    "part_drop_below": Case("DROP TABLE {t}_2d", True, _PARTED, after="INSERT INTO {t} VALUES (51, 1)"),
    "part_back": Case(
        "ALTER TABLE {t} DETACH PARTITION {t}_1; DELETE FROM {t}_1;"
        "ALTER TABLE {t} ATTACH PARTITION {t}_1 FOR VALUES IN (1)", True, _PARTED),
    "part_all": Case("TRUNCATE {t}", False, _PARTED),
    "part_all_and_one": Case(
        "TRUNCATE {t}; INSERT INTO {t} VALUES (1, 1), (1, 2); TRUNCATE {t}_1", True, _PARTED),
    "part_logged": Case(
        "ALTER TABLE {t}_1 SET UNLOGGED; DELETE FROM {t}_1 WHERE id < 5; ALTER TABLE {t}_1 SET LOGGED",
        True, _PARTED),
    "part_constant": Case("ALTER TABLE {t} ADD c int NOT NULL DEFAULT 7", False, _PARTED),
    "part_volatile": Case("ALTER TABLE {t} ADD c float DEFAULT random()", True, _PARTED),
    "part_type": Case("ALTER TABLE {t} ALTER note TYPE text", False, _PARTED),
    "part_retype": Case("ALTER TABLE {t} ALTER note TYPE text USING note || 'x'", True, _PARTED),
    "part_renamed": Case("ALTER TABLE {t}_1 RENAME TO {t}_one", False, _PARTED),
    "part_identity": Case("ALTER TABLE {t}_1 REPLICA IDENTITY FULL", True, _PARTED),
    "part_vacuum": Case("VACUUM FULL {t}_1", True, _PARTED, is_alone=True, is_doubtful=True),
    # Columns that are added.
    "constant": Case(
        "ALTER TABLE {t} ADD c int NOT NULL DEFAULT 7",
        after="INSERT INTO {t} (id) VALUES (51); UPDATE {t} SET k = 9 WHERE id = 3"),
    "constant_full": Case(
        "ALTER TABLE {t} ADD c int NOT NULL DEFAULT 7", False, _FULL,
        after="UPDATE {t} SET k = k; DELETE FROM {t} WHERE id = 3"),
    "constants": Case(
        "ALTER TABLE {t} ADD a text DEFAULT 'it''s \"x\"', ADD b timestamptz DEFAULT '2020-01-02 03:04:05.6+02',"
        "ADD c numeric(8,2) DEFAULT 1.5, ADD d int[] DEFAULT '{{1,2,NULL}}', ADD e interval DEFAULT '1 year -2 days',"
        "ADD f bytea DEFAULT '\\x00ff', ADD g bool DEFAULT true, ADD h float8 DEFAULT 'Infinity',"
        "ADD i date DEFAULT 'infinity', ADD j numeric DEFAULT 'NaN', ADD l uuid DEFAULT"
        "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', ADD m text[] DEFAULT '{{\"a,b\",c}}'"),
    "constant_vacuum": Case(
        "ALTER TABLE {t} ADD c int NOT NULL DEFAULT 7; VACUUM FULL {t}", True, is_alone=True),
    "constant_other": Case(
        "ALTER TABLE {t} ADD c int DEFAULT 7; ALTER TABLE {t} ALTER c SET DEFAULT 8",
        after="INSERT INTO {t} (id) VALUES (51)"),
    "constant_renamed": Case(
        "ALTER TABLE {t} ADD c int DEFAULT 7; ALTER TABLE {t} RENAME c TO d"),
    "constant_domain": Case("CREATE DOMAIN {t}_d AS int DEFAULT 5; ALTER TABLE {t} ADD c {t}_d", True,
                            is_doubtful=True),
    "null": Case("ALTER TABLE {t} ADD c int"),
    "volatile": Case("ALTER TABLE {t} ADD c float DEFAULT random()", True),
    "serial": Case("ALTER TABLE {t} ADD c serial", True),
    "identity": Case("ALTER TABLE {t} ADD c int GENERATED ALWAYS AS IDENTITY", True),
    "generated": Case("ALTER TABLE {t} ADD c int GENERATED ALWAYS AS (k * 2) STORED", is_doubtful=True),
    "expression": Case(
        "ALTER TABLE {t} ALTER c DROP EXPRESSION", True,
        _PLAIN.replace("note", "c int GENERATED ALWAYS AS (k * 2) STORED, note")),
    "moment": Case("ALTER TABLE {t} ADD c timestamptz DEFAULT now()"),
    "dropped_and_added": Case("ALTER TABLE {t} DROP note; ALTER TABLE {t} ADD c int DEFAULT 3"),
    # Types that are changed.
    "type_using": Case("ALTER TABLE {t} ALTER k TYPE int8 USING k * 2", True),
    "type_same": Case("ALTER TABLE {t} ALTER k TYPE int USING k + 1", True),
    "type_there_and_back": Case(
        "ALTER TABLE {t} ALTER k TYPE text USING k || '1'; ALTER TABLE {t} ALTER k TYPE int USING k::int",
        True),
    "type_key": Case("ALTER TABLE {t} ALTER id TYPE int8", True,
                     after="UPDATE {t} SET k = 5 WHERE id = 2; DELETE FROM {t} WHERE id = 3"),
    "type_int_bigint": _retyped("int", "g", "bigint"),
    "type_int_text": _retyped("int", "g", "text"),
    "type_char_text": _retyped("char(5)", "'a' || g", "text"),
    "type_varchar_text": _retyped("varchar(9)", "'a' || g", "text", is_said=False),
    "type_text_varchar": _retyped("text", "'a' || g", "varchar", is_said=False),
    "type_varchar_wider": _retyped("varchar(9)", "'a' || g", "varchar(12)", is_said=False),
    "type_varchar_narrower": _retyped("varchar(9)", "'a' || g || '  '", "varchar(3)"),
    "type_numeric_wider": _retyped("numeric(10,2)", "g / 8.0", "numeric(12,2)", is_said=False),
    "type_numeric_free": _retyped("numeric(10,2)", "g / 8.0", "numeric", is_said=False),
    "type_numeric_narrower": _retyped("numeric(10,2)", "g / 8.0", "numeric(10,1)"),
    "type_numeric_int": _retyped("numeric", "g + 0.5", "int"),
    "type_float_numeric": _retyped("float8", "g + 0.005", "numeric(10,2)"),
    "type_interval_text": _retyped("interval", "g * interval '1 day 2 h'", "text"),
    "type_json_jsonb": _retyped("json", "'{\"b\": 1,  \"a\": 2}'", "jsonb"),
    "type_time_zone": _retyped("timestamp", "'2026-01-02 03:04:05'", "timestamptz"),
    "type_time_wider": _retyped("timestamp(2)", "'2026-01-02 03:04:05.678'", "timestamp(4)", is_said=False),
    "type_time_seconds": _retyped("timestamp", "'2026-01-02 03:04:05.678'", "timestamp(0)"),
    "type_clock_seconds": _retyped("time", "'03:04:05.678'", "time(0)"),
    "type_cidr_inet": _retyped("cidr", "('10.0.0.' || g)::cidr", "inet"),
    "type_inet_cidr": _retyped("inet", "('10.0.0.' || g)::inet", "cidr"),
    "type_oid_int": _retyped("oid", "(4000000000 + g)::oid", "int"),
    "type_date": _retyped("date", "'2026-01-02'", "timestamp"),
    "type_bit": _retyped("bit(4)", "'0101'", "varbit"),
    "type_array": _retyped("int[]", "ARRAY[g, NULL]", "bigint[]"),
    "type_bool": _retyped("bool", "g > 4", "text"),
    "type_collation": _retyped("text", "'a' || g", 'text COLLATE "C"', is_said=False),
    # Types that are altered.
    "enum_renamed": Case("ALTER TYPE {t}_e RENAME VALUE 'a' TO 'A'", True, **_typed("{t}_e", "'a'", _ENUM)),
    "enum_swapped": Case(
        "ALTER TYPE {t}_e RENAME VALUE 'a' TO 'x'; ALTER TYPE {t}_e RENAME VALUE 'b' TO 'a';"
        "ALTER TYPE {t}_e RENAME VALUE 'x' TO 'b'", True, **_typed("{t}_e", "'a'", _ENUM)),
    "enum_array": Case(
        "ALTER TYPE {t}_e RENAME VALUE 'a' TO 'A'", True, **_typed("{t}_e[]", "'{{a,b}}'", _ENUM)),
    "enum_domain": Case(
        "ALTER TYPE {t}_e RENAME VALUE 'a' TO 'A'", True,
        **_typed("{t}_d", "'a'", _ENUM + "CREATE DOMAIN {t}_d AS {t}_e; ")),
    "enum_added": Case("ALTER TYPE {t}_e ADD VALUE 'z'", **_typed("{t}_e", "'a'", _ENUM)),
    "enum_type_renamed": Case("ALTER TYPE {t}_e RENAME TO {t}_f", **_typed("{t}_e", "'a'", _ENUM)),
    "range_of_enum": Case(
        "ALTER TYPE {t}_e RENAME VALUE 'b' TO 'B'", True,
        **_typed("{t}_r", "'[a,b]'", _ENUM + "CREATE TYPE {t}_r AS RANGE (subtype = {t}_e); ")),
    "composite_more": Case(
        "ALTER TYPE {t}_c ADD ATTRIBUTE z int", True,
        **_typed("{t}_c", "'(1,2)'", "CREATE TYPE {t}_c AS (x int, y int); ")),
    "composite_fewer": Case(
        "ALTER TYPE {t}_c DROP ATTRIBUTE x", True,
        **_typed("{t}_c", "'(1,2)'", "CREATE TYPE {t}_c AS (x int, y int); ")),
    "composite_renamed": Case(
        "ALTER TYPE {t}_c RENAME ATTRIBUTE x TO z",
        **_typed("{t}_c", "'(1,2)'", "CREATE TYPE {t}_c AS (x int, y int); ")),
    "composite_of_enum": Case(
        "ALTER TYPE {t}_e RENAME VALUE 'a' TO 'A'", True,
        **_typed("{t}_c", "'(1,a)'", _ENUM + "CREATE TYPE {t}_c AS (x int, y {t}_e); ")),
    "row_type": Case(
        "ALTER TABLE {t}_b ADD z int", True,
        **_typed("{t}_b", "'(1)'", "CREATE TABLE {t}_b (x int PRIMARY KEY); ")),
    "domain_checked": Case(
        "ALTER DOMAIN {t}_d ADD CHECK (VALUE > 0)", **_typed("{t}_d", "g", "CREATE DOMAIN {t}_d AS int; ")),
    "typed_table": Case(
        "ALTER TYPE {t}_y ADD ATTRIBUTE z int CASCADE", False,
        "CREATE TYPE {t}_y AS (id int, k int, note text);"
        "CREATE TABLE {t} OF {t}_y (PRIMARY KEY (id))"),
    # Names.
    "renamed_and_back": Case(
        "ALTER TABLE {t} RENAME TO {t}_x; INSERT INTO {t}_x VALUES (60, 1); ALTER TABLE {t}_x RENAME TO {t}",
        True),
    "renamed_and_back_quiet": Case(
        "ALTER TABLE {t} RENAME TO {t}_x; ALTER TABLE {t}_x RENAME TO {t}"),
    "renamed": Case(
        "ALTER TABLE {t} RENAME TO {t}_x; INSERT INTO {t}_x VALUES (60, 1)",
        after="INSERT INTO {t}_x VALUES (61, 1)"),
    "schema_and_back": Case(
        "ALTER TABLE {t} SET SCHEMA s; INSERT INTO s.{t} VALUES (60, 1); ALTER TABLE s.{t} SET SCHEMA public",
        True),
    "swapped": Case(
        "CREATE TABLE {t}_n (LIKE {t} INCLUDING ALL); INSERT INTO {t}_n VALUES (1, 1), (2, 2);"
        "ALTER TABLE {t} RENAME TO {t}_o; ALTER TABLE {t}_n RENAME TO {t}", True),
    "anew": Case(_ANEW, True, after="SELECT"),
    "anew_with_rows": Case(_ANEW + "; INSERT INTO {t} VALUES (1, 1)", True),
    "dropped": Case("DROP TABLE {t}", after="SELECT"),
    # Files.
    "truncate": Case("TRUNCATE {t}"),
    "truncate_cascade": Case("TRUNCATE {t} RESTART IDENTITY CASCADE"),
    "truncate_thrice": Case(
        "TRUNCATE {t}; INSERT INTO {t} VALUES (1, 1); TRUNCATE {t}; INSERT INTO {t} VALUES (2, 1); TRUNCATE {t}"),
    "unlogged": Case("ALTER TABLE {t} SET UNLOGGED", True),
    "logged_again": Case(
        "ALTER TABLE {t} SET UNLOGGED; DELETE FROM {t} WHERE id < 5; ALTER TABLE {t} SET LOGGED", True),
    "vacuum": Case("VACUUM {t}; ANALYZE {t}", is_alone=True),
    "vacuum_full": Case("VACUUM FULL {t}", True, is_alone=True, is_doubtful=True),
    "clustered": Case("CLUSTER {t} USING {t}_pkey", True, is_doubtful=True),
    "reindexed": Case("REINDEX TABLE {t}"),
    # What changes no row.
    "column_renamed": Case("ALTER TABLE {t} RENAME note TO n2"),
    "columns_swapped": Case(
        "ALTER TABLE {t} RENAME k TO x; ALTER TABLE {t} ADD k int; ALTER TABLE {t} RENAME x TO old_k",
        after="INSERT INTO {t} (id, k, old_k) VALUES (51, 4, 5)"),
    "column_dropped": Case("ALTER TABLE {t} DROP note"),
    "not_null": Case("ALTER TABLE {t} ALTER k SET NOT NULL"),
    "set_default": Case("ALTER TABLE {t} ALTER k SET DEFAULT 5", after="INSERT INTO {t} (id) VALUES (51)"),
    "storage": Case("ALTER TABLE {t} ALTER note SET STORAGE EXTERNAL, ALTER k SET STATISTICS 5"),
    "checked": Case("ALTER TABLE {t} ADD CHECK (id > 0), ADD UNIQUE (k, id)"),
    "identity_full": Case("ALTER TABLE {t} REPLICA IDENTITY FULL", after="UPDATE {t} SET k = k + 1"),
    "key_other": Case(
        "ALTER TABLE {t} ALTER k SET NOT NULL; ALTER TABLE {t} DROP CONSTRAINT {t}_pkey;"
        "ALTER TABLE {t} ADD PRIMARY KEY (k, id)", after="UPDATE {t} SET note = 'x' WHERE id = 2"),
    "an_index": Case("CREATE INDEX ON {t} (k)", after="UPDATE {t} SET k = k + 1"),
    "inherited": Case(
        "CREATE TABLE {t}_p (LIKE {t}); ALTER TABLE {t} INHERIT {t}_p; ALTER TABLE {t} NO INHERIT {t}_p"),
    "inherits_constant": Case(
        "ALTER TABLE {t}_p ADD c int DEFAULT 4", False,
        "CREATE TABLE {t}_p (id int PRIMARY KEY, k int, note text); CREATE TABLE {t} (PRIMARY KEY (id)) INHERITS ({t}_p)"),
    "granted": Case("GRANT SELECT ON {t} TO PUBLIC; ALTER TABLE {t} ENABLE ROW LEVEL SECURITY"),
    "triggered": Case("ALTER TABLE {t} DISABLE TRIGGER ALL; COMMENT ON TABLE {t} IS 'x'"),
}  # fmt: skip


def make_tables(database: Database, names: Iterable[str] = CASES) -> dict[str, Case]:
    """Make the tables of cases that a server knows; give these by title.

    All tables are published, partitioned ones by their root.
    """
    name = database.publication
    database.execute(
        f'DROP PUBLICATION "{name}"; CREATE SCHEMA s;'
        f'CREATE PUBLICATION "{name}" FOR ALL TABLES WITH (publish_via_partition_root)'
    )
    known = ((name, CASES[name]) for name in names)
    cases = {f"t_{name}": case for name, case in known if case.since <= database.server.major}
    with database.connect() as session:
        for title, case in cases.items():
            run(session, text_of(case.setup, title))
    return cases


def text_of(text: str, title: str) -> str:
    """The text of a case; braces that are SQL's own are doubled."""
    return text.replace("{t}", title).replace("{{", "{").replace("}}", "}")
