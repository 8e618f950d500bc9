"""Builds the Cython modules; all other facts of the package are in pyproject.toml.

A failed build fails: there is no slow path to fall back on. Every ``.pyx`` below
``gaussdecode/`` is one extension. ``GAUSSDECODE_BUILD=debug`` turns bounds checks on
and optimisation off, ``GAUSSDECODE_BUILD=asan`` adds AddressSanitizer and UBSan, and
``GAUSSDECODE_BUILD=quick`` only leaves out optimisation. ``GAUSSDECODE_BUILD=none`` builds nothing:
an editable installation of what has been built in place. Where ``CYTHON_CACHE_DIR`` is set, C that
was made there of the same sources is taken again.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

BUILD = os.environ.get("GAUSSDECODE_BUILD", "release")
COMPILE_ARGS = {
    "release": ["-O3", "-g1", "-fno-plt"],  # lines for stacks; all of -g is a third of the time
    "quick": ["-O0"],
    "debug": ["-O0", "-g"],
    "asan": ["-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined"],
}
LINK_ARGS = {"asan": ["-fsanitize=address,undefined"]}
CHECKED = BUILD in {"debug", "asan"}
SOURCES = sorted(Path("gaussdecode").rglob("*.pyx")) if BUILD != "none" else []
WORKERS = os.cpu_count() or 1


def extension(path: Path) -> Extension:
    """Describe one extension module; its name is its path."""
    return Extension(
        ".".join(path.with_suffix("").parts),
        [str(path)],
        extra_compile_args=["-std=c11", "-Wno-unreachable-code", *COMPILE_ARGS[BUILD]],
        extra_link_args=LINK_ARGS.get(BUILD, []),
    )


# Cython's workers import this file again where they are not forked: Python 3.14 and newer.
if __name__ == "__main__":
    setup(
        ext_modules=cythonize(
            [extension(path) for path in SOURCES],
            language_level=3,
            compiler_directives={
                "boundscheck": CHECKED,
                "wraparound": False,
                "cdivision": True,
                "initializedcheck": CHECKED,
                "freethreading_compatible": False,
            },
            nthreads=WORKERS,
            cache="CYTHON_CACHE_DIR" in os.environ,
        ),
        options={"build_ext": {"parallel": WORKERS}},
    )
