"""Which server's rows are read: makes the exporter that fits the kind of source."""

from gaussdecode.settings.rules import SourceKind
from gaussdecode.settings.sections import Config
from gaussdecode.source.export import Exporter
from gaussdecode.source.gaussdb.export import GaussExporter
from gaussdecode.source.postgresql.export import PgExporter


def exporter_of(config: Config) -> Exporter:
    """Make the one that fits the kind of source.

    Raises:
        ConfigError: the password file cannot be used.
    """
    if config.source.kind is SourceKind.GAUSSDB:
        return GaussExporter(config)
    return PgExporter(config)
