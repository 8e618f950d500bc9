"""Build wheels that run on any Linux of the kind: stripped, audited, the same bytes each time.

One sdist, and from it a wheel for each interpreter given, in an environment of its own. What a
wheel needs of the system's C library decides for which systems it is named (manylinux); symbols
for debuggers and paths of this machine are not in it. The time in it is that of the last commit, or
SOURCE_DATE_EPOCH.

usage: release/wheels.py [--out DIRECTORY] [--here] [PYTHON...]

Without --here, every one of Python 3.11 to 3.14 that is found on the path or with pyenv.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[1]
_MINORS: Final = (11, 12, 13, 14)
_TOOLS: Final = _ROOT / ".ci" / "build.lock"
LINK: Final = "gcc -shared -Wl,-z,relro,-z,now,--build-id=none"
"""As Debian links its own, but without a number made of the paths of the build; what an interpreter
was linked with may name directories of its machine."""


def interpreters() -> Iterator[Path]:
    """One of each version that wheels are made for, where there is one."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for minor in _MINORS:
        on_path = shutil.which(f"python3.{minor}")
        places = [Path("/usr/bin", f"python3.{minor}"), *([Path(on_path)] if on_path else ())]
        places += sorted(pyenv.glob(f"3.{minor}.*/bin/python3"))
        found = next((place for place in places if _can_build(place)), None)
        if found is None:
            print(f"wheels: no Python 3.{minor} with its headers is here", file=sys.stderr)
        else:
            yield found


def _can_build(python: Path) -> bool:
    code = "import ensurepip, os, sysconfig as s; assert os.path.exists(s.get_config_h_filename())"
    try:
        return (
            subprocess.run([python, "-c", code], check=False, capture_output=True).returncode == 0
        )
    except OSError:
        return False


def environment() -> dict[str, str]:
    """Variables of a build: the time of the sources, and this environment's tools."""
    told = ["git", "-C", str(_ROOT), "log", "-1", "--format=%ct"]
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or subprocess.check_output(told, text=True).strip()
    tools = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    own = {"SOURCE_DATE_EPOCH": epoch, "PATH": tools, "LDSHARED": LINK}
    return {**os.environ, **own, "CYTHON_CACHE_DIR": str(_ROOT / "build" / "cython")}


def build(sdist: Path, python: Path, out: Path) -> Path:
    """Build one wheel, with the locked pip, setuptools and Cython."""
    with tempfile.TemporaryDirectory() as name:
        subprocess.run([python, "-m", "venv", f"{name}/venv"], check=True)
        pip = [f"{name}/venv/bin/python", "-m", "pip", "--disable-pip-version-check", "--quiet"]
        subprocess.run([*pip, "install", "--require-hashes", "--requirement", _TOOLS], check=True)
        command = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--no-index", str(sdist)]
        command += ["--wheel-dir", f"{name}/built"]
        subprocess.run(command, check=True, env=environment())
        (built,) = Path(name, "built").glob("*.whl")
        return repair(built, out)


def repair(wheel: Path, out: Path) -> Path:
    """Strip a wheel, and name it for all systems that it runs on."""
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, "-m", "auditwheel", "repair", "--strip", "--wheel-dir", name]
        subprocess.run([*command, wheel], check=True, env=environment(), stdout=subprocess.DEVNULL)
        (repaired,) = Path(name).glob("*.whl")
        out.mkdir(parents=True, exist_ok=True)
        return Path(shutil.move(repaired, out / repaired.name))


def main() -> None:
    """Build all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=_ROOT / "dist")
    parser.add_argument("--here", action="store_true", help="with this interpreter only")
    parser.add_argument("python", type=Path, nargs="*")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, "setup.py", "--quiet", "sdist", "--dist-dir", name]
        subprocess.run(command, cwd=_ROOT, check=True, env=environment())
        (sdist,) = Path(name).glob("*.tar.gz")
        for python in args.python or ([Path(sys.executable)] if args.here else interpreters()):
            print(f"wheels: {python} ...", file=sys.stderr)
            print(build(sdist, python, args.out))
        shutil.copy(sdist, args.out)


if __name__ == "__main__":
    main()
