"""Real PostgreSQL servers of several majors, and a database per test on them.

A server is a `Cluster` of the demo with what only tests need: sessions, slots, TLS,
passwords. `Database` is one database of it with a publication and a slot.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import sql

from gaussdecode.demo.cluster import Cluster
from gaussdecode.model.lsn import Lsn
from kit import install

MAJORS: Final = install.MAJORS

Row = tuple[Any, ...]  # Any: whatever the query selects
Session = psycopg.Connection[Row]

_SENDERS: Final = (
    "SELECT r.state, wait_event, sent_lsn, write_lsn, pg_current_wal_flush_lsn(),"
    " pg_current_wal_insert_lsn() FROM pg_stat_replication r JOIN pg_stat_activity USING (pid)"
)


class Postgres(Cluster):
    """One server of one major, with the programs the set-up provided."""

    def __init__(self, major: int, settings: Mapping[str, str | None] | None = None) -> None:
        programs = install.find_bin(major)
        if programs is None:
            raise RuntimeError(f"PostgreSQL {major} is not there; `make test` fetches it")
        super().__init__(programs, settings)

    def connect(self, database: str = "postgres", **extra: str | int) -> Session:
        """Open a session in autocommit mode as the superuser."""
        return psycopg.connect(self.dsn(database, **extra), autocommit=True, client_encoding="UTF8")

    def execute(self, query: str, database: str = "postgres") -> list[Row]:
        """Run one statement (or several, when none gives rows) and fetch what it gives."""
        with self.connect(database) as session:
            return run(session, query)

    def program(self, name: str) -> Path:
        """Name one of the server's programs, such as ``pg_recvlogical``."""
        return self.bin / name

    def kill9(self) -> None:
        """Kill the postmaster as the kernel would; its children follow by themselves."""
        self.stop("kill")

    def save_files(self) -> Path:
        """Copy the files of the server, slots included, while it is stopped for that."""
        saved = self.home / "saved"
        self.stop()
        shutil.copytree(self.data, saved)
        self.start()
        return saved

    def put_back(self, saved: Path) -> None:
        """Put a copy in the place of the files: the server is restored to the past."""
        owner = self.data.stat()
        self.stop()
        shutil.rmtree(self.data)
        shutil.move(saved, self.data)
        for path in (self.data, *self.data.rglob("*")):
            shutil.chown(path, owner.st_uid, owner.st_gid)
        self.start()

    def use_password(self, user: str, password: str) -> None:
        """Make a role with REPLICATION that must give its password over TCP."""
        with self.connect() as session:
            session.execute(
                sql.SQL("CREATE ROLE {} LOGIN REPLICATION PASSWORD {}").format(
                    sql.Identifier(user), sql.Literal(password)
                )
            )
        hba = self.data / "pg_hba.conf"
        rules = f"host all {user} 127.0.0.1/32 scram-sha-256\n"
        hba.write_text(rules + hba.read_text())
        self.execute("SELECT pg_reload_conf()")

    def use_tls(self) -> Path:
        """Turn TLS on with a certificate for 127.0.0.1.

        Returns:
            The certificate authority, for ``sslrootcert``.
        """
        authority = make_certificates(self.data)
        public = self.home / "authority.pem"
        shutil.copy(authority, public)
        with self.connect() as session:
            for name in ("ssl_cert_file", "ssl_key_file"):
                suffix = "pem" if name == "ssl_cert_file" else "key"
                session.execute(
                    sql.SQL("ALTER SYSTEM SET {} = {}").format(
                        sql.Identifier(name), sql.Literal(f"server.{suffix}")
                    )
                )
            session.execute("ALTER SYSTEM SET ssl = on")
            session.execute("SELECT pg_reload_conf()")
        return public


def run(session: Session, query: str, values: Sequence[object] | None = None) -> list[Row]:
    """Run a statement whose text a test composed; give its rows, or none."""
    cursor = session.execute(query, values)
    return cursor.fetchall() if cursor.description else []


def make_certificates(directory: Path) -> Path:
    """Make a certificate authority and a server certificate it signed.

    Args:
        directory: gets ``authority.pem``, ``server.pem`` and ``server.key``, owned by
            the owner of the directory.

    Returns:
        The path of ``authority.pem``.
    """
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    commands = (
        ["req", "-x509", *key, "-keyout", "authority.key", "-out", "authority.pem",
         "-days", "7", "-subj", "/CN=gaussdecode test authority",
         "-addext", "keyUsage=critical,keyCertSign,cRLSign"],
        ["req", *key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=127.0.0.1",
         "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"],
        ["x509", "-req", "-in", "server.csr", "-CA", "authority.pem", "-CAkey", "authority.key",
         "-CAcreateserial", "-copy_extensions", "copy", "-extfile", "server.cnf", "-days", "7", "-out", "server.pem"],
    )  # fmt: skip
    # RFC 5280 wants it; Python 3.13 and newer refuse a certificate without it.
    (directory / "server.cnf").write_text("authorityKeyIdentifier=keyid\n")
    for command in commands:
        subprocess.run(["openssl", *command], cwd=directory, check=True, capture_output=True)
    owner = directory.stat()
    for name in ("server.key", "server.pem", "authority.pem"):
        os.chown(directory / name, owner.st_uid, owner.st_gid)
    (directory / "server.key").chmod(0o600)
    return directory / "authority.pem"


class Database:
    """One database with a publication for all its tables and a slot, removed at the end.

    Attributes:
        server: where it lives.
        name: of the database, of its slot and of its publication.
    """

    def __init__(self, server: Postgres, name: str, *, encoding: str = "UTF8") -> None:
        self.server = server
        self.name = name
        self.slot = name
        self.publication = name
        server.execute(f"CREATE DATABASE \"{name}\" TEMPLATE template0 ENCODING '{encoding}'")
        self.execute(f'CREATE PUBLICATION "{name}" FOR ALL TABLES')

    @property
    def dsn(self) -> str:
        """Connection string as the superuser."""
        return self.server.dsn(self.name)

    def connect(self) -> Session:
        """Open a session in autocommit mode."""
        return self.server.connect(self.name)

    def execute(self, query: str) -> list[Row]:
        """Run one statement and fetch what it gives."""
        return self.server.execute(query, self.name)

    def create_slot(self, name: str | None = None, plugin: str = "pgoutput") -> Lsn:
        """Create a logical slot; give its consistent point."""
        slot = name or self.slot
        rows = self.execute(
            f"SELECT lsn::text FROM pg_create_logical_replication_slot('{slot}', '{plugin}')"
        )
        return Lsn.parse(rows[0][0])

    def copy_slot(self, name: str, plugin: str = "pgoutput") -> None:
        """Copy the slot as it stands, perhaps for another output plug-in."""
        self.execute(
            f"SELECT pg_copy_logical_replication_slot('{self.slot}', '{name}', false, '{plugin}')"
        )

    def slot_positions(self) -> tuple[Lsn, Lsn]:
        """Give restart_lsn and confirmed_flush_lsn of the slot."""
        rows = self.execute(
            "SELECT restart_lsn::text, confirmed_flush_lsn::text FROM pg_replication_slots "
            f"WHERE slot_name = '{self.slot}'"
        )
        return Lsn.parse(rows[0][0]), Lsn.parse(rows[0][1])

    def senders(self) -> str:
        """What the server says of those who read from it; why not, where it cannot be asked."""
        try:
            return str(self.execute(_SENDERS))
        except psycopg.Error as error:
            return str(error)

    def wal_end(self) -> Lsn:
        """Give the position that the next WAL record will have."""
        return Lsn.parse(self.execute("SELECT pg_current_wal_insert_lsn()::text")[0][0])

    @property
    def slot_state(self) -> Path:
        """File in which the server keeps what was confirmed; it is current after a restart."""
        return self.server.data / "pg_replslot" / self.slot / "state"

    def drop(self) -> None:
        """Drop the slots and the database, with whoever still uses them.

        The server is given time to end who reads a slot: until it has, the slot is in use and
        neither it nor its database can be dropped.
        """
        with self.server.connect() as session:
            run(
                session,
                "SELECT pg_terminate_backend(active_pid, 30000) FROM pg_replication_slots "
                f"WHERE database = '{self.name}' AND active",
            )
            run(
                session,
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
                f"WHERE database = '{self.name}' AND NOT active",
            )
            run(session, f'DROP DATABASE IF EXISTS "{self.name}" WITH (FORCE)')
