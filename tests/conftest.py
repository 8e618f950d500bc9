"""Fixtures shared by all tests: servers, a database per test, a daemon over it."""

import gc
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings
from kit.commands import Result, Run
from kit.daemon import Daemon
from kit.postgres import MAJORS, Database, Postgres
from kit.s3 import S3
from kit.turns import has_its_turn
from kit.unit import is_unit, refuse

from gaussdecode.cli import main
from gaussdecode.demo import ports
from gaussdecode.land.files import Files

gc.disable()  # until all is imported and collected, which stays
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the daemon has it; threads would spin
# Every Java of the tests lives for minutes at most, also that of a command: compiling well would take longer.
# Without all tiers the code cache is 48 MiB, which Spark fills: what is thrown out is compiled again.
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{_JAVA} -XX:ReservedCodeCacheSize=240m")
os.environ.setdefault("SPARK_LAUNCHER_OPTS", _JAVA)

Daemon.is_forked = True


def _take_own_ports() -> None:
    """Leave each worker a part of the ports: a server of another one may be about to start, or be down."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    first, end = ports._LOWEST_PORT, ports._ephemeral_start()
    share = (end - first) // count
    setattr(ports, "_LOWEST_PORT", first + number * share)  # noqa: B010 - mypy: it is constant elsewhere
    ports._ephemeral_start = lambda: first + (number + 1) * share
    # Of Spark Connect, and of the page over all slots and the daemons in the guide.
    ports._given.update({15002, *range(19186, 19190)})


_take_own_ports()

# How long an example takes is the machine's matter, and no test judges by it.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

_numbers = itertools.count(1)

_LONG = (
    "test_lake",
    "test_snapshot",
    "test_gauss_landing",
    "test_kill",
    "test_live_unit",
    "test_package",
    "test_gauss_source",
    "test_columns",
    "test_alerts",
    "test_demo",
    "test_tables",
    "test_snapshot_steps",
    "test_power",
)
"""Files that take minutes, the longest first."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of `make test-unit`."""
    parser.addoption(
        "--unit", action="store_true", help="only tests without server, Java, browser and network"
    )


def pytest_configure(config: pytest.Config) -> None:
    """With `--unit`, fail tests that use a server nonetheless."""
    if config.getoption("unit"):
        sys.addaudithook(refuse)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave each test two majors, or with `--unit` the unit tests, and begin with what takes longest.

    So at the end no worker is left alone with a file of minutes. GAUSSDECODE_MAJORS=all has each
    test run with every major.
    """
    chosen: list[pytest.Item] = []
    others: list[pytest.Item] = []
    for item in items:
        is_chosen = is_unit(item) if config.getoption("unit") else has_its_turn(item)
        (chosen if is_chosen else others).append(item)
    config.hook.pytest_deselected(items=others)
    items[:] = chosen

    def rank(item: pytest.Item) -> int:
        if item.path.stem in _LONG:
            return _LONG.index(item.path.stem)
        is_long = any(map(item.get_closest_marker, ("integration", "spark", "crash")))
        return len(_LONG) if is_long else len(_LONG) + 1

    items.sort(key=rank)


def pytest_collection_finish() -> None:
    """Let the collector look at what tests make, and not again and again at thousands of tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)
    gc.enable()


@pytest.fixture(autouse=True)
def descriptors_are_given_back(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the landings that a test opened: a process that ends does, and here thousands of tests share one."""
    opened: list[Files] = []
    of_product = Files.__init__

    def noted(self: Files, *given: Any, **named: Any) -> None:  # Any: as given
        of_product(self, *given, **named)
        opened.append(self)

    monkeypatch.setattr(Files, "__init__", noted)
    yield
    for files in opened:
        files.close()


@pytest.fixture(autouse=True)
def log_as_it_was() -> Iterator[None]:
    """Undo what a test did to the log, which is the process's."""
    yield
    structlog.reset_defaults()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in this process."""

    def call(*arguments: str) -> Result:
        capsys.readouterr()
        status = main(list(arguments))
        return Result(status, *capsys.readouterr())

    return call


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """A running S3 server; tests make buckets of their own."""
    with S3(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session")
def servers() -> Iterator[Callable[[int], Postgres]]:
    """Running servers by major, each started when it is first asked for."""
    running: dict[int, Postgres] = {}

    def get(major: int) -> Postgres:
        if major not in running:
            running[major] = Postgres(major).__enter__()
        return running[major]

    yield get
    for server in running.values():
        server.remove()


@pytest.fixture(params=MAJORS)
def postgres(request: pytest.FixtureRequest, servers: Callable[[int], Postgres]) -> Postgres:
    """A running server: the test runs once for each major."""
    major: int = request.param
    return servers(major)


@pytest.fixture
def postgres_15(servers: Callable[[int], Postgres]) -> Postgres:
    """A running server of Debian's major; for tests that one major is enough for."""
    return servers(15)


def _database(server: Postgres) -> Iterator[Database]:
    database = Database(server, f"kit_{next(_numbers)}")
    yield database
    database.drop()


@pytest.fixture
def database(postgres: Postgres) -> Iterator[Database]:
    """An empty database with a publication, on a server of each major."""
    yield from _database(postgres)


@pytest.fixture
def database_15(postgres_15: Postgres) -> Iterator[Database]:
    """An empty database with a publication, on Debian's major."""
    yield from _database(postgres_15)


@pytest.fixture
def own_server() -> Iterator[Postgres]:
    """A durable server that the test may stop and kill; it runs."""
    with Postgres(15, {"fsync": "on", "wal_sender_timeout": "10s"}) as server:
        yield server


@pytest.fixture
def make_daemon(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    """Make daemons that are ended, and whose logs are shown, after the test."""
    made: list[Daemon] = []

    def make(database: Database, **options: object) -> Daemon:
        directory = tmp_path / f"daemon{len(made)}"
        directory.mkdir()
        daemon = Daemon(database, directory, **options)  # type: ignore[arg-type]  # as given
        made.append(daemon)
        return daemon

    yield make
    for daemon in made:
        daemon.__exit__(None, None, None)
        if daemon.log.exists():
            print(f"--- {daemon.log}\n{daemon.log_tail(60)}")
