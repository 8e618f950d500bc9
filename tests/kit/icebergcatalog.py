"""A catalog of Iceberg in this process's configuration of pyiceberg."""

from pathlib import Path

import pytest
from pyiceberg import catalog as pyiceberg
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.utils.config import Config


def configure(monkeypatch: pytest.MonkeyPatch, uri: str, name: str = "lake") -> None:
    """Describe a catalog as users do; pyiceberg reads its configuration when it is imported."""
    monkeypatch.setenv(f"PYICEBERG_CATALOG__{name.upper()}__URI", uri)
    monkeypatch.setattr(pyiceberg, "_ENV_CONFIG", Config())


def in_a_file(monkeypatch: pytest.MonkeyPatch, root: Path) -> Catalog:
    """The catalog ``lake`` in a database file; opened as other programs open it."""
    configure(monkeypatch, f"sqlite:///{root}/catalog.db")
    return load_catalog("lake")
