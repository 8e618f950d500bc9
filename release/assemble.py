"""Build everything of a release from the commit that is checked out, into build/release/VERSION/.

    *.whl, *.tar.gz                     wheels of every Python that is here, and the sdist
    gaussdecode_VERSION_ARCH.deb        the Debian package
    gaussdecode-VERSION-image-*.tar.gz  the container image
    gaussdecode.cdx.json                what is in it, as CycloneDX
    CHANGES.md                          the section of the changelog
    provenance.json                     commit, lock files and tools, as an in-toto statement; not signed
    SHA256SUMS                          of all the others

It publishes nothing and sets no tag. Debian 12 with Python 3.11, podman, runc and mmdebstrap; root.

usage: release/assemble.py
"""

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from changelog import section

import gaussdecode

_ROOT: Final = Path(__file__).parents[1]
_LOCKS: Final = ("requirements.lock", ".ci/build.lock", ".ci/dev.lock")
_SUMS, _PROVENANCE = "SHA256SUMS", "provenance.json"
_TOOLS: Final[Mapping[str, tuple[str, ...]]] = {
    "python": (sys.executable, "--version"),
    "gcc": ("gcc", "-dumpfullversion"),
    "pip": (sys.executable, "-m", "pip", "--version"),
    "auditwheel": (sys.executable, "-m", "auditwheel", "--version"),
    "dpkg-deb": ("dpkg-deb", "--version"),
    "mmdebstrap": ("mmdebstrap", "--version"),
    "podman": ("podman", "--version"),
}

Json = dict[str, Any]  # Any: JSON


def sha256(path: Path) -> str:
    """The checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_sums(out: Path) -> None:
    """Write the checksums of all files, for ``sha256sum --check``."""
    names = sorted(path.name for path in out.iterdir() if path.name != _SUMS)
    (out / _SUMS).write_text("".join(f"{sha256(out / name)}  {name}\n" for name in names))


def provenance(out: Path, commit: str, tools: Mapping[str, str]) -> Json:
    """Say what the files were made of and with, as an in-toto statement of SLSA's kind.

    Args:
        out: directory of the files.
        commit: that is checked out.
        tools: versions by name.
    """
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            {"name": path.name, "digest": {"sha256": sha256(path)}}
            for path in sorted(out.iterdir())
            if path.name not in {_SUMS, _PROVENANCE}
        ],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "make release",
                "externalParameters": {"version": gaussdecode.__version__},
                "resolvedDependencies": [
                    {"name": "source", "digest": {"gitCommit": commit}},
                    *(
                        {"name": name, "digest": {"sha256": sha256(_ROOT / name)}}
                        for name in _LOCKS
                    ),
                ],
            },
            "runDetails": {
                "builder": {"id": platform.platform(), "version": dict(tools)},
            },
        },
    }


def tools() -> dict[str, str]:
    """The first line of what each tool says of its version, without where it is installed."""
    told = {
        name: subprocess.run(command, check=True, capture_output=True, text=True).stdout
        for name, command in _TOOLS.items()
    }
    return {name: without_place(text) for name, text in told.items()}


def without_place(text: str) -> str:
    """The first line, up to the directory that pip and auditwheel name."""
    return re.split(r" (?:from|installed at) /", text.splitlines()[0])[0]


def _git(*words: str) -> str:
    return subprocess.check_output(["git", "-C", str(_ROOT), *words], text=True).strip()


def _run(*command: str | Path, **variables: str) -> None:
    subprocess.run(command, cwd=_ROOT, check=True, env={**os.environ, **variables})


def main() -> None:
    """Build all of it.

    Raises:
        SystemExit: the checkout has changes, or the changelog no section; a tool is missing.
    """
    version = gaussdecode.__version__
    if changed := _git("status", "--porcelain"):
        raise SystemExit(f"commit or remove these changes first:\n{changed}")
    if missing := [of[0] for of in _TOOLS.values() if shutil.which(of[0]) is None]:
        raise SystemExit(f"missing; install it: apt-get install {' '.join(missing)}")
    changes = section((_ROOT / "CHANGELOG.md").read_text(), version)
    out = _ROOT / "build/release" / version
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    (out / "CHANGES.md").write_text(f"# gaussdecode {version}\n\n{changes}\n")
    epoch = _git("log", "-1", "--format=%ct")
    _run(sys.executable, "release/wheels.py", "--out", out, SOURCE_DATE_EPOCH=epoch)
    (wheel,) = out.glob("*-cp311-*.whl")  # of Debian's Python
    _run("release/deb.sh", wheel, out, SOURCE_DATE_EPOCH=epoch)
    _run("release/image.sh", wheel, out, SOURCE_DATE_EPOCH=epoch)
    locked = _ROOT / "build/locked"
    _run("/usr/bin/python3.11", "-m", "venv", "--clear", locked)
    pip = (locked / "bin/pip", "--disable-pip-version-check", "--quiet", "install")
    _run(*pip, "--require-hashes", "--requirement", "requirements.lock")
    _run(*pip, "--no-deps", "--no-index", wheel)
    sbom = ("release/sbom.py", "--environment", locked / "bin/python", out / "gaussdecode.cdx.json")
    _run(sys.executable, *sbom)
    statement = provenance(out, _git("rev-parse", "HEAD"), tools())
    (out / _PROVENANCE).write_text(f"{json.dumps(statement, indent=1)}\n")
    write_sums(out)
    print(out)


if __name__ == "__main__":
    main()
