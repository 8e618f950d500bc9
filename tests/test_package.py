"""The package as it is given away: built from a checkout, installed, and used far from it."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[1]
BUILT_FROM = ("gaussdecode", "systemd", "docs", "config", "tests")
FILES = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md")
UNITS = (
    "gaussdecode@.service",
    "gaussdecode.target",
    "gaussdecode.sysusers",
    "gaussdecode.tmpfiles",
)
SUITE = (
    "tests/model",
    "tests/protocol/test_canonical.py",
    "tests/decode",
    "tests/ipc/test_ring_processes.py",
    "tests/land/test_writer.py",
    "tests/land/test_verify.py",
    "tests/test_cli.py",
    "tests/settings/test_load.py",
    "tests/integration/test_hangup.py",
)
"""Every layer, and the daemon with its processes over a real server."""


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

    Without optimisation: what is asked is whether all of it is there and fits together.
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
        cwd=elsewhere, GAUSSDECODE_BUILD="debug",
    )  # fmt: skip
    (wheel,) = dist.glob("*.whl")
    run(*pip, "install", "--no-deps", "--no-index", "--target", site, wheel, cwd=elsewhere)
    return Package(sdist, wheel, site, elsewhere)


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
        names = set(wheel.namelist())
        for unit in UNITS:
            assert wheel.read(f"gaussdecode/units/{unit}") == (ROOT / "systemd" / unit).read_bytes()
    tops = {name.split("/")[0] for name in names}
    assert len(tops) == 2, tops
    assert not [name for name in names if name.endswith((".c", ".pyx"))]
    assert {"gaussdecode/py.typed", "gaussdecode/_wire.pyi"} <= names
    installed = modules(package.site / "gaussdecode", ".py", ".so")
    assert installed == modules(ROOT / "gaussdecode", ".py", ".pyx")


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
    installed = package.run(program, "install-units", "--destdir", root, "--program", program)
    assert installed.returncode == 0, installed.stderr
    assert len([path for path in root.rglob("*") if path.is_file()]) == len(UNITS)


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
