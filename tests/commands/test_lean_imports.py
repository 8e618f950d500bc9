"""What a landing process does without."""

import subprocess
import sys
import textwrap

SCRIPT = """
    import sys
    from gaussdecode.host.lean_imports import forgo_pandas
    forgo_pandas()
    import numpy
    import pyarrow
    print(pyarrow.array(numpy.arange(3)).to_pylist(), "pandas" in sys.modules)
"""


def test_pandas_stays_out_and_pyarrow_works() -> None:
    """A conversion from numpy neither imports pandas nor misses it."""
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT)], capture_output=True, text=True, check=True
    )
    assert run.stdout == "[0, 1, 2] False\n"


def test_rich_stays_out() -> None:
    """The log does without it, where it is installed; who imports it later gets it."""
    script = "import sys, gaussdecode.logs; print('rich' in sys.modules); import rich; print(rich)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("False\n<module 'rich'")


def test_a_daemon_starts_without_slow_modules() -> None:
    """What is loaded later, while the server begins the stream, or never, is not loaded before."""
    script = """
        import sys
        import gaussdecode.commands.run
        import gaussdecode.daemon.supervisor
        late = ("pyarrow.compute", "pyarrow.parquet", "gaussdecode.spark.log", "cryptography", "pandas")
        print([name for name in late if name in sys.modules])
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    )
    assert run.stdout == "[]\n"
