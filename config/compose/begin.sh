#!/bin/sh
# What the README has for a server, once, when its database is made.
set -eu
psql --username postgres --dbname shop --set ON_ERROR_STOP=1 --set secret="$(cat /run/secrets/password)" <<'END'
CREATE ROLE gaussdecode LOGIN REPLICATION NOINHERIT CONNECTION LIMIT 13 PASSWORD :'secret';
CREATE SCHEMA sales;
CREATE TABLE sales.orders (id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer text, total numeric(12,2));
INSERT INTO sales.orders (customer, total) SELECT 'customer ' || i % 7, i * 1.25 FROM generate_series(1, 1000) i;
GRANT CONNECT ON DATABASE shop TO gaussdecode;
GRANT USAGE ON SCHEMA sales TO gaussdecode;
GRANT SELECT ON ALL TABLES IN SCHEMA sales TO gaussdecode;
CREATE PUBLICATION orders FOR TABLES IN SCHEMA sales;
END
