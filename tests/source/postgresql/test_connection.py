"""Connection strings, sessions and errors."""

import socket
from pathlib import Path
from typing import Any

import pytest
from kit.postgres import Database, Postgres
from psycopg.conninfo import conninfo_to_dict

from gaussdecode.errors import ConfigError, LoginRefusedError, SourceError, SourceRefusedError
from gaussdecode.source.address import SourceAddress
from gaussdecode.source.postgresql import connection as postgresql
from gaussdecode.source.postgresql.connection import Connection, connect, session_conninfo
from gaussdecode.source.postgresql.libpq import FUNCTIONS, find_libpq


def completed(conninfo: str, password: str | None = None, insecure: bool = False) -> dict[str, str]:
    """The parameters that libpq is given."""
    text = session_conninfo(SourceAddress(conninfo, password, insecure))
    return {key: str(value) for key, value in conninfo_to_dict(text).items()}


def test_defaults_protect_and_do_not_overrule() -> None:
    """TLS with verification, keepalives and time-outs, unless the string says otherwise."""
    given = completed("host=db keepalives_idle=7 application_name=mine")
    assert given["sslmode"] == "verify-full"
    assert given["gssencmode"] == "disable"
    assert given["tcp_user_timeout"] == "60000"
    assert given["keepalives_idle"] == "7"
    assert given["application_name"] == "mine"
    assert given["replication"] == "database"
    assert "client_encoding" not in given  # the database decides, see `use_encoding`


def test_own_options_come_after_the_given_ones() -> None:
    """The session spells values as the decoder reads them, whatever else was asked for."""
    options = completed("host=db options='-c DateStyle=SQL -c work_mem=1MB'")["options"]
    assert options.startswith("-c DateStyle=SQL -c work_mem=1MB ")
    assert options.rindex("DateStyle=ISO") > options.rindex("DateStyle=SQL")


@pytest.mark.parametrize("mode", ["disable", "allow", "prefer", "require", "verify-ca"])
def test_less_protection_needs_leave(mode: str) -> None:
    """The message names the setting."""
    with pytest.raises(ConfigError, match="allow-insecure"):
        completed(f"host=db sslmode={mode}")
    assert completed(f"host=db sslmode={mode}", insecure=True)["sslmode"] == mode


@pytest.mark.parametrize("host", ["/run/postgresql", "@abstract", "/a,/b"])
def test_unix_sockets_are_secure(host: str) -> None:
    """Nothing leaves the machine."""
    assert "sslmode" not in completed(f"host='{host}' dbname=x")


@pytest.mark.parametrize("hosts", ["host=/run,db", "hostaddr=10.0.0.1 host=/run"])
def test_one_network_host_makes_it_a_network_connection(hosts: str) -> None:
    """The weakest decides."""
    assert completed(hosts)["sslmode"] == "verify-full"


class _Hung:
    """A connection whose copy has ended, and whose server says no more."""

    def __init__(self) -> None:
        self._ends = socket.socketpair()
        self.socket = self._ends[0].fileno()
        self.was_asked = False

    def is_busy(self) -> bool:
        return True

    def consume_input(self) -> None:
        """Nothing comes."""

    def get_result(self) -> None:
        self.was_asked = True  # libpq would wait here for ever

    def get_error_message(self) -> str:
        return "nothing is wrong here"

    def close(self) -> None:
        for end in self._ends:
            end.close()


def test_end_of_a_stream_does_not_wait_for_a_server_that_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Why the stream ended is asked for only once the answer is there."""
    monkeypatch.setattr(postgresql, "_STOPPING_SECONDS", 0.05)
    hung: Any = _Hung()
    error = Connection(hung, find_libpq(), None).stream_error()
    assert error.retryable
    assert not hung.was_asked
    hung.close()


def test_broken_string_is_not_repeated() -> None:
    """It may hold a password."""
    with pytest.raises(ConfigError) as caught:
        completed("host=db password=geheim nonsense")
    assert "geheim" not in str(caught.value)


def test_address_hides_its_secrets() -> None:
    """Neither repr shows them."""
    address = SourceAddress("host=db password=geheim", "noch eins")
    assert "geheim" not in repr(address)
    assert "noch" not in repr(address)


def test_functions_of_psycopgs_libpq_are_found() -> None:
    """All of them, at addresses that are not null."""
    libpq = find_libpq()
    assert set(libpq.addresses) == set(FUNCTIONS)
    assert all(libpq.addresses.values())


@pytest.mark.integration
def test_session_spells_values_as_the_decoder_reads_them(
    database: Database, address: SourceAddress
) -> None:
    """The settings hold, whatever the database's own are."""
    for setting in ("DateStyle = 'SQL, DMY'", "bytea_output = 'escape'", "TimeZone = 'Asia/Tokyo'"):
        database.execute(f"ALTER DATABASE {database.name} SET {setting}")
    with connect(address) as connection:
        names = ("DateStyle", "IntervalStyle", "TimeZone", "extra_float_digits", "bytea_output")
        seen = [connection.query(f"SHOW {name}")[0][0] for name in names]
        encoding = connection.parameter("client_encoding")
    assert [seen[0].partition(",")[0] if seen[0] else "", *seen[1:]] == [
        "ISO", "postgres", "UTC", "3", "hex",
    ]  # fmt: skip
    assert encoding == "UTF8"


@pytest.mark.integration
def test_texts_come_in_the_encoding_of_the_database(postgres_15: Postgres) -> None:
    """Also messages; what is no letter is shown escaped, and nothing breaks."""
    database = Database(postgres_15, "kit_latin1", encoding="LATIN1")
    with connect(SourceAddress(database.dsn + " sslmode=disable", None, True)) as connection:
        assert connection.query("SHOW client_encoding") == [("LATIN1",)]
        assert connection.query("SELECT 'na\u00efve', chr(233)") == [("na\u00efve", "\u00e9")]
        with pytest.raises(SourceError, match="caf\u00e9"):
            connection.query('SELECT * FROM "caf\u00e9"')
    database.drop()
    database = Database(postgres_15, "kit_ascii", encoding="SQL_ASCII")
    with connect(SourceAddress(database.dsn + " sslmode=disable", None, True)) as connection:
        assert connection.query("SELECT E'\\x81'") == [("\udc81",)]
        with pytest.raises(SourceError):
            connection.query('SELECT * FROM "\udc81"')
    database.drop()


@pytest.mark.integration
def test_refusals_name_the_reason(postgres_15: Postgres) -> None:
    """SQLSTATE and advice also while connecting, and never the password."""
    postgres_15.use_password("guarded", "secret-word")
    dsn = postgres_15.dsn(user="guarded") + " sslmode=disable"

    with pytest.raises(SourceRefusedError) as wrong:
        connect(SourceAddress(dsn, "wrong-word", True))
    with pytest.raises(SourceRefusedError, match="no password"):
        connect(SourceAddress(dsn, None, True))
    with pytest.raises(SourceRefusedError) as missing:
        connect(SourceAddress(postgres_15.dsn("nowhere") + " sslmode=disable", None, True))

    assert wrong.value.sqlstate == "28P01"
    assert "wrong-word" not in str(wrong.value)
    assert missing.value.sqlstate == "3D000"
    connect(SourceAddress(dsn, "secret-word", True)).close()


def test_unreachable_server_may_come_back() -> None:
    """A refused port is no mistake of the configuration."""
    address = SourceAddress("host=127.0.0.1 port=1 dbname=x user=y sslmode=disable", None, True)
    with pytest.raises(SourceError) as caught:
        connect(address)
    assert caught.value.retryable


def test_missing_authority_is_explained(tmp_path: Path) -> None:
    """It is asked for before anybody is connected to, and may come back: its file may be being replaced."""
    address = SourceAddress(f"host=127.0.0.1 port=1 dbname=x sslrootcert={tmp_path}/none.pem")
    with pytest.raises(LoginRefusedError, match=r"none.pem: No such file .*sslrootcert=system"):
        connect(address)


@pytest.mark.integration
def test_role_without_replication_is_refused(database: Database, address: SourceAddress) -> None:
    """The advice names the privilege."""
    database.execute(f"DROP ROLE IF EXISTS plain_{database.name}")
    database.execute(f"CREATE ROLE plain_{database.name} LOGIN")
    conninfo = address.conninfo.replace("user=postgres", f"user=plain_{database.name}")
    with pytest.raises(SourceRefusedError, match="REPLICATION"):
        connect(SourceAddress(conninfo, None, True))
    database.execute(f"DROP ROLE plain_{database.name}")
