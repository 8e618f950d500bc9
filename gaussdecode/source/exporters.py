"""Make the exporter that fits the kind of source."""

from gaussdecode.settings.rules import SourceKind
from gaussdecode.settings.sections import Config
from gaussdecode.source.export import Exporter

# Imported where it is used: what reads the other kind of source need not wait for it at its start.


def exporter_of(config: Config) -> Exporter:
    """Make the one that fits the kind of source."""
    if config.source.kind is SourceKind.GAUSSDB:
        from gaussdecode.source.gaussdb.export import GaussExporter

        return GaussExporter(config)
    from gaussdecode.source.postgresql.export import PgExporter

    return PgExporter(config)
