"""`make test-unit` runs the tests that need no server, and no others."""

import pytest
from kit.postgres import Database, Postgres
from kit.unit import is_heavy, is_unit, refuse


def starts_a_server() -> Postgres:
    return Postgres(15)


def calls_what_starts_one() -> None:
    starts_a_server()


def runs_a_program() -> list[str]:
    return [*["promtool"], "check"]


def names_a_database(database: Database) -> str:
    return database.name


def test_code_tells_what_it_uses() -> None:
    """Directly, or by a function of the same module; a type alone starts nothing."""
    assert is_heavy(starts_a_server)
    assert is_heavy(calls_what_starts_one)
    assert is_heavy(runs_a_program)
    assert not is_heavy(names_a_database)


def test_a_plain_test_is_one(request: pytest.FixtureRequest) -> None:
    """It has no marker, and no fixture that starts a server."""
    assert is_unit(request.node)


@pytest.mark.slow
def test_a_marked_test_is_none(request: pytest.FixtureRequest) -> None:
    """Whatever it uses."""
    assert not is_unit(request.node)


@pytest.mark.parametrize("program", ["/usr/lib/postgresql/15/bin/postgres", "java", "chromium"])
def test_servers_are_refused(program: str) -> None:
    """With the name of the program."""
    with pytest.raises(pytest.fail.Exception, match=r"a unit test started \w+: mark it"):
        refuse("subprocess.Popen", (program, [program], None, None))
    refuse("subprocess.Popen", ("/usr/bin/gcc", ["gcc"], None, None))


def test_other_machines_are_refused() -> None:
    """This machine is not."""
    with pytest.raises(pytest.fail.Exception, match=r"connected to 192\.0\.2\.1"):
        refuse("socket.connect", (None, ("192.0.2.1", 443)))
    refuse("socket.connect", (None, ("127.0.0.1", 5432)))
