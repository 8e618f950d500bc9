"""Fixtures of the integration tests: simulated GaussDB servers."""

from collections.abc import Callable, Iterator

import pytest
from kit.gaussprofile import V6_0_0, Profile
from kit.gaussserver import Behaviour, GaussServer
from kit.gausssql import Catalogue
from kit.gaussstore import Store
from kit.postgres import Postgres


@pytest.fixture
def make_gauss(servers: Callable[[int], Postgres]) -> Iterator[Callable[..., GaussServer]]:
    """Make running simulated servers, with an openGauss catalogue; they end with the test."""
    made: list[GaussServer] = []

    def make(
        profile: Profile = V6_0_0,
        *,
        store: Store | None = None,
        has_catalogue: bool = True,
        **options: object,
    ) -> GaussServer:
        options.setdefault("behaviour", Behaviour(flush_seconds=0.05))
        catalogue = Catalogue(servers(15)) if has_catalogue else None
        server = GaussServer(store or Store(), profile, catalogue=catalogue, **options)  # type: ignore[arg-type]  # as given
        made.append(server.start())
        return server

    yield make
    for server in made:
        server.crash()
        if server.catalogue is not None:
            server.catalogue.close()
