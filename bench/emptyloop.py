"""Receive a slot's stream through libpq and drop it: the least that any consumer must do.

A contender of `live.py`, in a process of its own; prints one JSON object. The loop is `_emptyloop.pyx`, compiled to
``build/bench`` when it has changed. Time and CPU time begin with START_REPLICATION, so that
starting Python and connecting are not counted.

    python bench/emptyloop.py DSN SLOT PUBLICATION END_LSN
"""

import argparse
import importlib.machinery
import importlib.util
import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from gaussdecode.model.lsn import Lsn
from gaussdecode.source._pace import Pacer
from gaussdecode.source.address import SourceAddress
from gaussdecode.source.postgresql import slot as slots
from gaussdecode.source.postgresql.connection import connect
from gaussdecode.source.postgresql.libpq import address_of

NARROW_BYTES: Final = 65536
_HERE: Final = Path(__file__).resolve().parent
_PROJECT: Final = _HERE.parent
_SOURCE: Final = _HERE / "_emptyloop.pyx"
_BUILD: Final = _PROJECT / "build" / "bench"


def build() -> Path:
    """Compile the loop if it has changed; give the extension module."""
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    target = _BUILD / f"_emptyloop{suffix}"
    if target.exists() and target.stat().st_mtime > _SOURCE.stat().st_mtime:
        return target
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension

    extensions = cythonize(
        [Extension("_emptyloop", [str(_SOURCE)], extra_compile_args=["-O3", "-std=c11"])],
        build_dir=str(_BUILD),
        include_path=[str(_PROJECT)],
        language_level=3,
        compiler_directives={"boundscheck": False, "wraparound": False, "cdivision": True},
        quiet=True,
    )
    command = Distribution({"ext_modules": extensions}).get_command_obj("build_ext")
    command.build_lib = str(_BUILD)
    command.build_temp = str(_BUILD / "objects")
    command.ensure_finalized()
    command.run()
    return target


def load() -> ModuleType:
    """Import the compiled loop."""
    spec = importlib.util.spec_from_file_location("_emptyloop", build())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pacer_for(descriptor: int, *, is_encrypted: bool) -> tuple[Pacer, bool]:
    """What a reader begins with on such a socket, and whether it bounds the receive buffer."""
    with socket.socket(fileno=socket.dup(descriptor)) as copy:
        if copy.family == socket.AF_UNIX:
            return Pacer(0), False
        if is_encrypted:
            return Pacer(5), False
        copy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, NARROW_BYTES)
        return Pacer(3), True


def receive(args: argparse.Namespace) -> dict[str, Any]:
    """Stream everything up to the end position; give what it took."""
    loop = load()
    with connect(SourceAddress(args.dsn, None, is_insecure_allowed=True)) as connection:
        options = slots.stream_options(
            connection.server_version, [args.publication], messages=True, only_local=False
        )
        pgconn = connection.pgconn
        began, cpu = time.perf_counter(), time.process_time()
        slots.start_stream(connection, args.slot, Lsn(0), options)
        ahead = connection.read_ahead()
        pacer, is_narrow = pacer_for(pgconn.socket, is_encrypted=bool(pgconn.ssl_in_use))
        counts: dict[str, int] = loop.receive(
            pgconn, address_of(pgconn), connection.libpq.addresses, pgconn.socket,
            Lsn.parse(args.end), pacer,
            *((0, 0) if ahead is None else (ahead.ssl, ahead.has_pending)), is_narrow,
        )  # fmt: skip
        seconds, spent = time.perf_counter() - began, time.process_time() - cpu
        connection.end_stream()
    return {"seconds": seconds, "cpu_seconds": spent, **counts}


def run(dsn: str, slot: str, publication: str, end: Lsn) -> dict[str, Any]:
    """Run the loop in a process of its own; give what `receive` gives."""
    build()
    command = [sys.executable, __file__, dsn, slot, publication, str(end)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the empty loop failed:\n{done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def main() -> None:
    """Receive and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("dsn", "slot", "publication", "end"):
        parser.add_argument(name)
    print(json.dumps(receive(parser.parse_args())))


if __name__ == "__main__":
    main()
