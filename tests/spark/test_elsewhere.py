"""The side of Spark needs nothing that only Linux has: no compiled module of this package, no call of Linux alone.

So it may run on macOS, where no test runs.
"""

import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

_DATA: Final = Path(__file__).parents[1] / "data"
_PROGRAM: Final = """
import fcntl, importlib, importlib.machinery, os, pkgutil, signal, socket, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        found = importlib.machinery.PathFinder.find_spec(name, path) if name.startswith("gaussdecode.") else None
        if found is not None and isinstance(found.loader, importlib.machinery.ExtensionFileLoader):
            raise ImportError(f"{name} is compiled")

sys.meta_path.insert(0, Refuse())
LINUX = {
    os: "memfd_create O_TMPFILE O_PATH O_DIRECT sched_getaffinity posix_fadvise posix_fallocate fdatasync pipe2 "
    "pidfd_open setresuid getresuid copy_file_range splice eventfd getxattr setxattr getrandom setns unshare",
    socket: "SO_PEERCRED AF_NETLINK",
    signal: "sigtimedwait sigwaitinfo pidfd_send_signal",
    fcntl: "F_ADD_SEALS F_SETPIPE_SZ F_OFD_SETLK",
}
for module, names in LINUX.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)

import gaussdecode.spark
for module in pkgutil.walk_packages(gaussdecode.spark.__path__, "gaussdecode.spark."):
    importlib.import_module(module.name)
from gaussdecode.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_local_apply_needs_nothing_of_linux(tmp_path: Path) -> None:
    """Every module is imported, a landing is verified and becomes tables."""
    newest = max(_DATA.glob("*.tar.xz"))
    with tarfile.open(newest) as tar:
        tar.extractall(tmp_path, filter="data")
    root, target = str(tmp_path / "landing"), tmp_path / "target"
    for words in (["verify", root], ["spark", "apply", "--local", root, str(target)]):
        command = [sys.executable, "-c", _PROGRAM, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert list(target.rglob("*.parquet"))
