"""Tables of many types and keys, and changes of them, for those that follow a landing."""

from typing import Final

TABLES: Final = """
    CREATE TABLE kinds (id int PRIMARY KEY, b bool, s smallint, l bigint, n numeric(12, 3), f float4, d float8,
        t text, v varchar(20), c char(5), x bytea, day date, at time, stamp timestamp, zoned timestamptz,
        span interval, j jsonb, u uuid, a int[], e inet);
    CREATE TABLE pairs (k text, m int, v text, PRIMARY KEY (k, m));
    CREATE TABLE bag (v text, n int);
    ALTER TABLE bag REPLICA IDENTITY FULL;
    CREATE TABLE wide (id int PRIMARY KEY, large text, small int);
    ALTER TABLE wide ALTER large SET STORAGE EXTERNAL;
    CREATE SCHEMA "Other One";
    CREATE TABLE "Other One"."Täble" ("Kéy" int PRIMARY KEY, "v" text)
"""
CHANGES: Final = (
    """INSERT INTO kinds SELECT i, i % 2 = 0, i, i * 10000000000, i / 7.0, i / 3.0, i / 3.0, 'it''s ' || i, 'v' || i,
        'c', decode('00ff5c', 'hex'), date '2024-02-29' + i, time '23:59:59.5', timestamp '2024-01-01' + i * interval '1h',
        timestamptz '2024-01-01 12:00+05' + i * interval '1us', i * interval '1 day 2 hours', '{"a": [1, null]}',
        '00000000-0000-0000-0000-000000000001', ARRAY[i, NULL], '10.0.0.1' FROM generate_series(1, 50) i""",
    "INSERT INTO kinds (id) VALUES (-1); INSERT INTO kinds (id, d, n) VALUES (-2, 'NaN', NULL)",
    "UPDATE kinds SET t = NULL WHERE id < 10; DELETE FROM kinds WHERE id BETWEEN 20 AND 25",
    "INSERT INTO pairs VALUES ('a', 1, 'x'), ('b', 2, E'tab\\t\\\\ é \U0001f600')",
    "UPDATE pairs SET k = 'z' WHERE k = 'a'; DELETE FROM pairs WHERE k = 'b'",
    "INSERT INTO bag VALUES ('a', 1), ('a', 1), (NULL, NULL); DELETE FROM bag WHERE v IS NULL",
    "UPDATE bag SET n = 2",
    "INSERT INTO wide VALUES (1, repeat('x', 20000), 1); UPDATE wide SET small = 2",
    """INSERT INTO "Other One"."Täble" VALUES (1, 'one'), (2, NULL); TRUNCATE pairs""",
    "INSERT INTO pairs SELECT 'p', i, 'v' || i FROM generate_series(1, 300) i",
)
