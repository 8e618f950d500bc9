"""Write files for node_exporter's textfile collector."""

import os
from pathlib import Path

from gaussdecode.errors import ConfigError


def write_metrics(path: Path, text: str) -> None:
    """Write a file for the collector in one step.

    Raises:
        ConfigError: it cannot be written there.
    """
    hidden = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        hidden.write_text(text, encoding="utf-8")
        hidden.replace(path)
    except OSError as error:
        hidden.unlink(missing_ok=True)
        raise ConfigError(
            f"--metrics-file {path} cannot be written: {error.strerror}; give a file in a directory that "
            "exists and that this user may write"
        ) from error
