"""The daemon over a simulated GaussDB: every style, version and fault, exactly once."""

from collections.abc import Callable
from pathlib import Path

import pytest
from kit import gausscheck
from kit.gaussdaemon import GaussDatabase, lands
from kit.gaussprofile import V6_0_0, Profile
from kit.gaussserver import GaussServer
from kit.gaussworkload import Workload

pytestmark = pytest.mark.integration
MakeGauss = Callable[..., GaussServer]


def test_style_b_in_batches(make_gauss: MakeGauss, tmp_path: Path) -> None:
    """The product's usual way lands what was committed, once, and confirms only that."""
    gauss = make_gauss(V6_0_0)
    database = GaussDatabase(gauss)
    workload = Workload(gauss.store, 1)
    workload.run(40)
    options = {"decode_style": "b", "sending_batch": 1}
    with lands(database, tmp_path, parallel_decode_num=2, **options) as daemon:
        daemon.catch_up()
        workload.run(40)
        daemon.catch_up()
        assert daemon.stop() == 0
        gausscheck.check(daemon.root, gauss)
