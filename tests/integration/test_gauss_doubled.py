"""A message of the stream that comes twice, and answers to SQL that cannot be, end the daemon; nothing lands."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from kit import landing
from kit.gaussdaemon import GaussDatabase, lands
from kit.gaussprofile import V6_0_0
from kit.gaussserver import GaussServer

from gaussdecode.errors import EX_PROTOCOL

pytestmark = pytest.mark.integration
MakeGauss = Callable[..., GaussServer]
_PARALLEL: Final[dict[str, object]] = {"parallel_decode_num": 2, "skip_empty_xacts": False}
_STYLES: Final[dict[str, dict[str, object]]] = {
    "b": {**_PARALLEL, "decode_style": "b", "sending_batch": 1},
    "b-unbatched": {**_PARALLEL, "decode_style": "b", "sending_batch": 0},
    "t": {**_PARALLEL, "decode_style": "t", "sending_batch": 1},
    "j": {**_PARALLEL, "decode_style": "j", "sending_batch": 1},
    "serial": {"parallel_decode_num": 1},
}


@pytest.mark.parametrize("number", [1, 2, 3, 8])
@pytest.mark.parametrize("style", _STYLES)
@pytest.mark.parametrize("order", [0, 1])
def test_a_message_that_comes_twice(
    make_gauss: MakeGauss, tmp_path: Path, style: str, number: int, order: int
) -> None:
    """Whatever of a transaction it holds: its beginning, rows in the middle, or its end."""
    server = make_gauss(V6_0_0)
    table = server.store.create_table("kit", "t", {"id": "int8", "v": "text"}, key=["id"])
    options = {**_STYLES[style], "output_order": order}
    with lands(GaussDatabase(server), tmp_path, **options) as daemon:
        daemon.wait_for_state("streaming")
        made = server.store.begin()
        for id_ in range(24):
            made.insert(table, {"id": str(id_), "v": "x" * 400_000})
        server.behaviour.doubled = number
        made.commit()
        assert daemon.wait() == EX_PROTOCOL, daemon.log_tail()
        assert not server.behaviour.doubled
        assert "came twice" in daemon.log_tail(3) or "BEGIN" in daemon.log_tail(3)
        assert all(entry["kind"] != "data" for entry in landing.read_entries(daemon.root))


@pytest.mark.parametrize("answer", ["0", None, str(2**63 + 5), str(2**62)])
def test_a_next_csn_that_cannot_be(
    make_gauss: MakeGauss, tmp_path: Path, answer: str | None
) -> None:
    """It says so, and no entry has it."""
    server = make_gauss(V6_0_0)
    table = server.store.create_table("kit", "t", {"id": "int8"}, key=["id"])
    with lands(GaussDatabase(server), tmp_path, **_STYLES["b"], output_order=1) as daemon:
        daemon.wait_for_state("streaming")
        server.behaviour.told_csn = answer
        made = server.store.begin()
        made.insert(table, {"id": "1"})
        made.commit()
        assert daemon.wait() == EX_PROTOCOL, daemon.log_tail()
        assert "gs_get_next_xid_csn()" in daemon.log_tail(2)
        assert all(entry["kind"] != "data" for entry in landing.read_entries(daemon.root))
