"""Builds the Cython modules; all other facts of the package are in pyproject.toml.

A failed build fails: there is no slow path to fall back on. Every ``.pyx`` below
``gaussdecode/`` is one extension. ``GAUSSDECODE_BUILD=debug`` turns bounds checks on
and optimisation off, ``GAUSSDECODE_BUILD=asan`` adds AddressSanitizer and UBSan.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

BUILD = os.environ.get("GAUSSDECODE_BUILD", "release")
COMPILE_ARGS = {
    "release": ["-O3", "-g1", "-fno-plt"],  # lines for stacks; all of -g is a third of the time
    "debug": ["-O0", "-g"],
    "asan": ["-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined"],
}
LINK_ARGS = {"asan": ["-fsanitize=address,undefined"]}
CHECKED = BUILD != "release"
WORKERS = os.cpu_count() or 1


def extension(path: Path) -> Extension:
    """Describe one extension module; its name is its path."""
    return Extension(
        ".".join(path.with_suffix("").parts),
        [str(path)],
        extra_compile_args=["-std=c11", "-Wno-unreachable-code", *COMPILE_ARGS[BUILD]],
        extra_link_args=LINK_ARGS.get(BUILD, []),
    )


setup(
    ext_modules=cythonize(
        [extension(path) for path in sorted(Path("gaussdecode").rglob("*.pyx"))],
        language_level=3,
        compiler_directives={
            "boundscheck": CHECKED,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": CHECKED,
            "freethreading_compatible": False,
        },
        nthreads=WORKERS,
    ),
    options={"build_ext": {"parallel": WORKERS}},
)
