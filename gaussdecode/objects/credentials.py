"""Read a file of credentials: lines ``NAME=value``, with the names that the stores' own tools use."""

import re
import stat
from pathlib import Path
from typing import Final

from gaussdecode.errors import ConfigError

_KEYS: Final = re.compile(r"(?:aws|google|gcs|azure|hadoop)_[a-z0-9_]+")


def read_credentials(path: Path | None, section: str = "landing.mirror.") -> dict[str, str]:
    """Read one; names come in lower case.

    Raises:
        ConfigError: it cannot be used; no value is repeated.
    """
    if path is None:
        return {}
    where = f"{section}credentials-file {path}"
    try:
        facts = path.stat()
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise ConfigError(f"{where}: {why}") from None
    # As of a password: Kubernetes lets the account's group read.
    if facts.st_mode & (stat.S_IRWXO | stat.S_IWGRP):
        raise ConfigError(f"{where}: others can read it; chmod 0600 {path}")
    found = {}
    for number, line in enumerate(lines, 1):
        name, equals, value = line.strip().partition("=")
        if not name or name.startswith("#"):
            continue
        key = name.strip().removeprefix("export ").strip().lower()
        if not equals or not _KEYS.fullmatch(key):
            raise ConfigError(
                f"{where}, line {number}: allowed: AWS_..., GOOGLE_..., AZURE_... or HADOOP_..., an "
                "equals sign and its value"
            )
        found[key] = value.strip().strip("\"'")
    return found
