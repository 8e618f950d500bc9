"""The package as it is given away: built from a checkout, installed, and used far from it."""

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from kit import oracle, tutorial
from kit.daemon import wait_until
from kit.installed import PASSWORD, ROLE, Installed
from kit.machine import Machine
from kit.postgres import Database, Postgres, make_certificates
from kit.runbook import lines_of
from kit.workload import prepare
from wheels import LINK, repair

from gaussdecode.demo.ports import free_port
from gaussdecode.errors import EX_CONFIG, EX_UNAVAILABLE
from gaussdecode.spark.target.deletion_vectors import current_rows
from gaussdecode.spark.target.store import Target

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[1]
BUILT_FROM = ("gaussdecode", "systemd", "docs", "config", "tests")
FILES = (
    "pyproject.toml",
    "setup.py",
    "MANIFEST.in",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "requirements.lock",
)
UNITS = (
    "gaussdecode@.service",
    "gaussdecode.target",
    "gaussdecode-fleet.service",
    "gaussdecode-apply@.service",
    "gaussdecode-serve@.service",
    "gaussdecode.sysusers",
    "gaussdecode.tmpfiles",
)
SHARED = {
    "example.yaml": "example.yaml",
    "gaussdb.example.yaml": "gaussdb.example.yaml",
    "small.yaml": "small.yaml",
    "sources.yaml": "sources.yaml",
    "gaussdecode.rules.yml": "prometheus/gaussdecode.rules.yml",
    "prometheus.yml": "prometheus/prometheus.yml",
    "gaussdecode.json": "grafana/gaussdecode.json",
}
SUITE = (
    "tests/protocol/test_canonical.py",
    "tests/decode",
    "tests/ipc/test_ring_processes.py",
    "tests/land/test_writer.py",
    "tests/test_cli.py",
    "tests/settings/test_load.py",
    "tests/integration/test_hangup.py",
)
"""Every layer, and the daemon with its processes over a real server."""
_SHOP = """
CREATE SCHEMA sales;
CREATE TABLE sales.orders (id int8 PRIMARY KEY, customer text NOT NULL, total numeric(12,2));
CREATE TABLE sales.items (order_id int8, line int4, sku text, PRIMARY KEY (order_id, line));
INSERT INTO sales.orders SELECT i, 'customer ' || i % 7, i * 1.25 FROM generate_series(1, 1000) i;
INSERT INTO sales.items SELECT i, 1, 'sku ' || i FROM generate_series(1, 1000) i;
"""
_WORK = """
UPDATE sales.orders SET total = NULL WHERE id % 10 = 0;
DELETE FROM sales.orders WHERE id > 900;
INSERT INTO sales.orders VALUES (2001, 'new', 0.01);
"""
NEXT = "99.0.0"
_ROWS = "SELECT id, customer, total FROM sales.orders ORDER BY id"


class Package(NamedTuple):
    """What was built, and where it is installed."""

    sdist: Path
    wheel: Path
    site: Path
    elsewhere: Path

    @property
    def environment(self) -> Mapping[str, str]:
        """Finds the installed package before any other."""
        return {**os.environ, "PYTHONPATH": str(self.site)}

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        """Run something with the installed package, outside of the checkout."""
        return subprocess.run(
            command, cwd=self.elsewhere, env=self.environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip


def run(*command: str | Path, cwd: Path, **variables: str) -> None:
    """Run a step of the build; shows what it said when it failed."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **variables}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    """The sdist of this checkout, a wheel built from that, installed in a directory of its own.

    With the C and the objects that set-up made of the same sources, where it did; else without
    optimisation: what is asked is whether all of it is there and fits together.
    """
    base = tmp_path_factory.mktemp("package")
    checkout, dist, site, elsewhere = (base / n for n in ("checkout", "dist", "site", "elsewhere"))
    built = shutil.ignore_patterns("*.so", "*.html", "__pycache__", "*.pyc")
    for name in BUILT_FROM:
        shutil.copytree(ROOT / name, checkout / name, symlinks=True, ignore=built)
    for name in FILES:
        shutil.copy(ROOT / name, checkout)
    elsewhere.mkdir()
    run(sys.executable, "setup.py", "--quiet", "sdist", "--dist-dir", dist, cwd=checkout)
    (sdist,) = dist.glob("*.tar.gz")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    run(
        *pip, "wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", dist, sdist,
        cwd=elsewhere, LDSHARED=LINK, GAUSSDECODE_BUILD="quick", CYTHON_CACHE_DIR=str(ROOT / "build" / "cython"),
        CC=f"sh {ROOT / 'tests/kit/compiler.sh'}", SETUP=str(ROOT),
        OBJECTS=str(ROOT / "build" / f"temp.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"),
    )  # fmt: skip
    (plain,) = dist.glob("*.whl")
    wheel = repair(plain, base / "repaired")
    run(*pip, "install", "--no-deps", "--no-index", "--target", site, wheel, cwd=elsewhere)
    return Package(sdist, wheel, site, elsewhere)


def renumbered(wheel: Path, directory: Path) -> Path:
    """The same wheel as the one of the next version."""
    run(sys.executable, "-m", "wheel", "unpack", wheel, cwd=directory)
    (tree,) = directory.iterdir()
    (metadata,) = tree.glob("*.dist-info")
    for path, pattern in (
        (metadata / "METADATA", r"(?m)^(Version: ).*()$"),
        (tree / "gaussdecode/__init__.py", r'(?m)^(__version__\b.* ").*(")$'),
    ):
        text, count = re.subn(pattern, rf"\g<1>{NEXT}\2", path.read_text())
        assert count == 1, path
        path.write_text(text)
    metadata.rename(metadata.with_name(f"gaussdecode-{NEXT}.dist-info"))
    run(sys.executable, "-m", "wheel", "pack", tree, cwd=directory)
    (packed,) = directory.glob("*.whl")
    return packed


def _rows(machine: Machine, lake: str) -> list[tuple[object, ...]]:
    """Of the orders, as the newest version of the table has them."""
    target = Target(machine.root / lake[1:])
    database = target.database()
    assert database is not None
    version = target.version("sales.orders", database.tables["sales.orders"])
    place = target.table_root("sales.orders")
    read = [current_rows(place, file) for file in version.current]
    rows = pa.concat_tables(read).select(["id", "customer", "total"]).sort_by("id").to_pylist()
    return [(row["id"], row["customer"], row["total"]) for row in rows]


def modules(directory: Path, *suffixes: str) -> set[str]:
    """Names of all modules below a checkout or an installation, by the endings of their files."""
    found = (path for path in directory.rglob("*") if path.suffix in suffixes)
    return {
        str(path.relative_to(directory).parent / path.name.split(".")[0])
        for path in found
        if "units" not in path.parts
    }


def test_the_wheel_has_what_runs_and_nothing_else(package: Package) -> None:
    """Every module, the types, the units; neither sources in C nor tests."""
    with zipfile.ZipFile(package.wheel) as wheel:
        names = {name for name in wheel.namelist() if not name.endswith("/")}
        for unit in UNITS:
            assert wheel.read(f"gaussdecode/units/{unit}") == (ROOT / "systemd" / unit).read_bytes()
        for name, source in SHARED.items():
            given = wheel.read(f"gaussdecode/share/{name}")
            assert given == (ROOT / "config" / source).read_bytes()
        assert len([name for name in names if "/share/" in name]) == len(SHARED)
        runbooks = wheel.read("gaussdecode/daemon/status/alerts.md")
        assert runbooks == (ROOT / "docs" / "alerts.md").read_bytes()
    tops = {name.split("/")[0] for name in names}
    assert len(tops) == 2, tops
    assert not [name for name in names if name.endswith((".c", ".pyx"))]
    assert {"gaussdecode/py.typed", "gaussdecode/_wire.pyi"} <= names
    installed = modules(package.site / "gaussdecode", ".py", ".so")
    assert installed == modules(ROOT / "gaussdecode", ".py", ".pyx")


def test_the_wheel_is_for_all_systems_of_its_kind(package: Package) -> None:
    """Nothing newer of the C library than manylinux says; neither symbols nor paths of this machine."""
    (tag,) = re.findall(r"manylinux_2_(\d+)_", package.wheel.name)
    assert int(tag) <= 28
    extensions = list(package.site.rglob("*.so"))
    assert len(extensions) == len(list((ROOT / "gaussdecode").rglob("*.pyx")))
    for path in extensions:
        told = subprocess.check_output(["readelf", "--wide", "--sections", "--dynamic", path])
        assert b".text" in told
        assert not re.findall(rb"\.symtab|\.debug_\w+|build-id|RPATH|RUNPATH", told), path
        assert set(re.findall(rb"NEEDED.*\[(.*)\]", told)) <= {b"libc.so.6", b"libm.so.6"}
        content = path.read_bytes()
        for place in (ROOT, package.elsewhere.parent, Path(sys.base_prefix, "lib")):
            assert bytes(place) not in content, path


def test_the_sdist_has_the_sources(package: Package) -> None:
    """Of the extensions those that people write; and the tests with their kit."""
    with tarfile.open(package.sdist) as sdist:
        names = {name.split("/", 1)[-1] for name in sdist.getnames()}
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "gaussdecode").rglob("*.pyx")}
    assert sources <= names
    assert not [name for name in names if name.endswith((".c", ".so"))]
    assert {"tests/kit/postgres.py", "tests/vectors/opengauss.json", "docs/operate.md"} <= names


def test_the_installed_program_works(package: Package) -> None:
    """It is the one that was installed, knows its version, and brings its units."""
    where = package.run(sys.executable, "-c", "import gaussdecode; print(gaussdecode.__file__)")
    assert where.stdout.strip() == str(package.site / "gaussdecode" / "__init__.py")
    program = package.site / "bin" / "gaussdecode"
    version = package.run(program, "--version")
    assert package.wheel.name.startswith(version.stdout.split()[1].join(("gaussdecode-", "-")))
    root = package.elsewhere / "root"
    place = "/opt/gaussdecode/bin/gaussdecode"  # the unit would not see it where it is here
    installed = package.run(program, "install-units", "--destdir", root, "--program", place)
    assert installed.returncode == 0, installed.stderr
    assert len([path for path in root.rglob("*") if path.is_file()]) == len(UNITS) + len(SHARED)


@pytest.mark.integration
def test_the_suite_passes_on_the_installed_package(package: Package) -> None:
    """A part of every layer's tests, run from a copy, where no checkout is in reach."""
    suite = package.elsewhere / "suite"
    shutil.copytree(ROOT / "tests", suite / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", suite)
    told = "import gaussdecode, pytest, sys; print(gaussdecode.__file__); sys.exit(pytest.main())"
    done = subprocess.run(
        [sys.executable, "-P", "-c", told, "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *SUITE],
        cwd=suite, env={**package.environment, "PYTEST_ADDOPTS": ""}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert done.stdout.startswith(str(package.site))


def _live_a_day(
    reader: tutorial.Reader,
    machine: Machine,
    database: Database,
    newer: Path,
    follow: Callable[[], None],
) -> None:
    """What operators do to a slot that runs, up to its end: nothing is missing, nothing twice."""
    unit, config = "gaussdecode@orders", "/etc/gaussdecode/orders.yaml"

    def stream() -> None:
        machine.do(f"gaussdecode status --wait 200 {config}")

    def record() -> Any:  # Any: JSON
        return json.loads(machine.do("curl -s http://127.0.0.1:19187/status"))

    reader.begin("A new password")
    reader.type("ALTER ROLE gaussdecode PASSWORD 'battery staple';")
    secret = "/etc/gaussdecode/orders.password"
    reader.type(f"printf '%s\\n' 'battery staple' | install -m 0600 /dev/stdin {secret}")
    reader.type(f"systemctl restart {unit}")
    stream()

    reader.begin("A changed configuration, and a wrong one")
    reader.type(f"sed -i 's/max-commit-interval: 30s/max-commit-interval: 1s/' {config}")
    reader.type(f"systemctl reload {unit}")
    reader.type(f"sed -i.good 's/^slot: orders/slot: [/' {config}")
    reader.type(f"systemctl reload {unit} || test $? = 1")
    reader.type(f"mv {config}.good {config}")
    stream()

    reader.begin("A pause, and a restart of the server")
    reader.type("gaussdecode ctl orders pause")
    stands = record()["durable_lsn"]
    database.server.restart()
    reader.type("UPDATE sales.orders SET total = 2 WHERE id = 2001;")
    wait_until(lambda: record()["state"] == "paused", "it has connected again, and is paused")
    assert machine.run(f"gaussdecode status {config}").status == EX_UNAVAILABLE
    assert record()["durable_lsn"] == stands
    reader.type("gaussdecode ctl orders resume")

    reader.begin("A new table, of a publication that another role owns")
    reader.type("CREATE TABLE sales.returns (id int8 PRIMARY KEY, reason text);")
    reader.type("INSERT INTO sales.returns VALUES (1, 'broken');")
    reader.type("GRANT SELECT ON sales.returns TO gaussdecode;")
    refused = reader.type("gaussdecode ctl orders add sales.returns || test $? = 69")
    (statement,) = re.findall(r"ALTER PUBLICATION .*;", refused)
    reader.type(statement)
    reader.type("gaussdecode ctl orders add sales.returns")
    stream()
    assert "sales.returns " in machine.do(f"gaussdecode check --tables {config}")

    reader.begin("A newer version")
    machine.do("mkdir dist")
    shutil.copy(newer, machine.root / "root/dist")
    for line in lines_of("Upgrade"):
        if line.startswith("gaussdecode check "):  # what it shows is another in each run
            machine.do(reader.filled_in(line))
        else:
            reader.type(line)
    stream()
    assert record()["version"] == NEXT

    reader.begin("The end")
    database.execute("INSERT INTO sales.orders VALUES (2002, 'newer', 0.02)")
    reader.type("gaussdecode ctl orders rotate")
    reader.type("gaussdecode ctl orders drop sales.returns || test $? = 69")
    follow()
    oracle.check(machine.root / "var/lib/gaussdecode/orders", database)
    assert machine.do(f"systemctl show --value -p NRestarts {unit}") == "0\n"
    for line in lines_of("Remove"):
        reader.type(line)
    places = "/etc/systemd /etc/sysusers.d /etc/tmpfiles.d /opt /usr/local"
    assert machine.do(f"find {places} -name 'gaussdecode*'") == ""
    assert database.execute("SELECT FROM pg_replication_slots") == []
    journal = machine.do(f"journalctl -b -o cat -u {unit}")
    assert "Traceback" not in journal + reader.text()
    assert "battery staple" not in journal
    assert "landing.max-commit-interval" in journal
    assert re.findall(r'"event": "(act_\w+)".*?"act": "(\w+)"', journal) == [
        ("act_done", "reload"),
        ("act_done", "pause"),
        ("act_done", "resume"),
        ("act_refused", "add"),
        ("act_done", "add"),
        ("act_done", "rotate"),
        ("act_refused", "drop"),
    ]


@pytest.mark.integration
@pytest.mark.machine
def test_the_tutorial_and_a_day_on_a_new_machine(package: Package, tmp_path: Path) -> None:
    """From the server's settings to a table, each command as it stands; changes follow; then what operators do."""
    with (
        Postgres(15, {"wal_level": None}) as server,
        Machine(tmp_path / "machine", is_bare=True) as machine,
    ):
        database = Database(server, "shop")
        database.execute("DROP PUBLICATION shop")
        database.execute(_SHOP)
        checkout = "/root/gaussdecode"
        machine.do(f"mkdir -p {checkout}/dist")
        shutil.copy(package.wheel, machine.root / checkout[1:] / "dist")
        watched = free_port()
        told = f'ARGS="--web.listen-address=127.0.0.1:{watched}"\n'
        machine.write("/etc/default/prometheus", told)
        machine.do("systemctl start prometheus")

        def certify() -> None:
            authority = make_certificates(server.data)
            (server.data / "server.pem").rename(server.data / "server.crt")
            shutil.copy(authority, machine.root / "root/ca.pem")
            server.restart()

        def let_in() -> None:
            (rule,) = re.findall(r"`(hostssl [^`]*)`", page)
            hba = server.data / "pg_hba.conf"
            hba.write_text(f"{reader.filled_in(rule)}\n{hba.read_text()}")

        words = {
            "DBHOST": "localhost", "DBPORT": str(server.port), "DAEMON": "127.0.0.1",
            "SECRET": "correct horse", "CHECKOUT": checkout, "SLOT": "orders",
            "CONFIG": "/etc/gaussdecode/orders.yaml",
        }  # fmt: skip
        page = tutorial.PAGE.read_text()
        reader = tutorial.Reader(machine, server, "shop", words, {str(server.port): "5432"})
        for step in tutorial.steps():
            reader.carry_out(step, {"Restart the server": certify, "pg_hba.conf": let_in})
        query = f"http://127.0.0.1:{watched}/api/v1/query?query=gaussdecode_land_durable_lsn"
        wait_until(lambda: '"slot":"orders"' in machine.do(f"curl -s {query}"), "it is scraped")
        database.execute(_WORK)
        (apply,) = [line for line in tutorial.steps()[-1].lines if " spark apply " in line]
        lake = "/var/lib/lake/orders"

        def has_followed() -> bool:
            machine.do(apply)
            return _rows(machine, lake) == database.execute(_ROWS)

        def follow() -> None:
            wait_until(has_followed, "the table is the source's")

        follow()
        (tmp_path / "next").mkdir()
        _live_a_day(reader, machine, database, renumbered(package.wheel, tmp_path / "next"), follow)
        record = reader.text()
        if os.environ.get("GAUSSDECODE_RECORD"):  # keep this run in place of the one before
            tutorial.RECORD.write_text(record)
        assert tutorial.alike(record) == tutorial.alike(tutorial.RECORD.read_text())


@pytest.mark.integration
@pytest.mark.machine
def test_the_debian_package(package: Package, tmp_path: Path) -> None:
    """Installed, run by its unit, upgraded while it runs, removed and purged: nothing is lost."""
    built = subprocess.run(
        [ROOT / "release" / "deb.sh", package.wheel, tmp_path], check=False, capture_output=True,
        text=True, env={**os.environ, "COMPRESS": "-Znone"},
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    deb = Path(built.stdout.splitlines()[-1])
    with (
        Postgres(15, {"wal_sender_timeout": "10s"}) as server,
        Machine(tmp_path / "machine", is_bare=True) as machine,
    ):
        server.use_password(ROLE, PASSWORD)
        shutil.copy(deb, machine.root / "root")
        machine.do(f"dpkg --install {deb.name}")
        daemon = Installed(machine, Database(server, "packed"))
        workload = prepare(daemon.database, 60)
        daemon.start()
        daemon.wait_for_state("streaming")
        workload.run(10)
        tables = f"gaussdecode-apply@{daemon.database.name}"

        def show(what: str, unit: str = tables) -> str:
            return machine.do(f"systemctl show --value -p {what} {unit}").strip()

        machine.run(f"systemctl start {tables}")
        wait_until(lambda: show("ActiveState") == "failed", "Spark is missing")
        assert show("ExecMainStatus") == str(EX_CONFIG)
        assert "pyspark is not installed; " in machine.do(f"journalctl -u {tables}")
        apply = "/opt/gaussdecode/bin/gaussdecode spark apply /var/lib/gaussdecode/%i"
        local = f"{apply} /var/lib/gaussdecode-tables/%i --follow --interval 30 --local --tables kit.toast"
        drop_in = "/etc/systemd/system/gaussdecode-apply@.service.d"
        machine.do(f"mkdir -p {drop_in}")
        machine.write(f"{drop_in}/local.conf", f"[Service]\nExecStart=\nExecStart={local}\n")
        machine.do(f"systemctl daemon-reload; systemctl restart {tables}")
        units = (daemon.unit, tables)
        before = {unit: show("MainPID", unit) for unit in units}
        machine.do(f"dpkg --install {deb.name}")
        for unit in units:
            is_new = functools.partial(
                lambda of: show("MainPID", of) not in {"0", before[of]}, unit
            )
            wait_until(is_new, f"the upgrade starts {unit} again")
        daemon.wait_for_state("streaming")
        workload.run(10)
        daemon.catch_up()
        machine.do("dpkg --remove gaussdecode")
        assert machine.run("command -v gaussdecode").status != 0
        for unit in units:
            assert machine.run(f"systemctl is-active {unit}").out == "inactive\n"
        machine.do("dpkg --purge gaussdecode")
        assert (
            machine.do("find /opt /usr/bin /usr/lib/systemd /usr/share -name 'gaussdecode*'") == ""
        )
        machine.do(f"test -s {daemon.config_path}")
        oracle.check(daemon.root, daemon.database)
