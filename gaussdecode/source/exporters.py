"""Make the exporter that fits the kind of source."""

from gaussdecode.settings.rules import SourceKind
from gaussdecode.settings.sections import Config
from gaussdecode.source.address import SourceAddress
from gaussdecode.source.export import Exporter

# Imported where it is used: what reads the other kind of source need not wait for it at its start.


def exporter_of(config: Config, address: SourceAddress | None = None) -> Exporter:
    """Make the one that fits the kind of source.

    Args:
        config: configuration of the source.
        address: address of its server; None for what `config` says, with its password file.
    """
    if config.source.kind is SourceKind.GAUSSDB:
        from gaussdecode.source.gaussdb.export import GaussExporter

        return GaussExporter(config, address)
    from gaussdecode.source.postgresql.export import PgExporter

    return PgExporter(config, address)
