"""Retention beside virtual slots: what they need stays within a bound, and a slot that is lost is named."""

import dataclasses
from pathlib import Path

import structlog
from kit.landrun import BLOCK, Landing
from kit.simdisk import SimFiles

from gaussdecode.daemon.housekeeping import Housekeeper
from gaussdecode.model.seal import canonical_json, sealed
from gaussdecode.serve.kept import SLOTS, read_slots
from gaussdecode.settings.landing_sections import LandingConfig


def _write(root: Path, name: str, n: int) -> None:
    (root / SLOTS).mkdir(parents=True, exist_ok=True)
    (root / SLOTS / f"{name}.json").write_bytes(sealed(canonical_json({"version": 1, "n": n})))


def test_slots_hold_retention_back_within_a_bound(tmp_path: Path) -> None:
    """As long as the bound allows; beyond it the log names the slots whose entries went."""
    files = SimFiles()
    Landing(files, transactions=15).run()
    log = Landing(files, "second").open()
    settings = LandingConfig(root=tmp_path, retention=0.0, max_slot_keep_size=None)
    errors: list[BaseException] = []
    keeper = Housekeeper(log, settings, errors.append, slots=lambda: read_slots(tmp_path))
    _write(tmp_path, "behind", 1)
    _write(tmp_path, "ahead", 3 * BLOCK)
    keeper.work()
    assert log.floor == -1
    (tmp_path / SLOTS / "damaged.json").write_bytes(b"{")
    keeper.work()
    assert log.floor == -1
    keeper = Housekeeper(
        log,
        dataclasses.replace(settings, max_slot_keep_size=0),
        errors.append,
        slots=lambda: read_slots(tmp_path),
    )
    with structlog.testing.capture_logs() as logged:
        keeper.work()
    assert log.floor > 3 * BLOCK
    (lost,) = (line for line in logged if line["event"] == "serve_slots_lost")
    assert lost["slots"] == ["ahead", "behind", "damaged"]
    assert not errors


def test_what_slots_hold_is_counted_and_a_lost_one_holds_nothing(tmp_path: Path) -> None:
    """Of the blocks that would go without them; unknown before the first look."""
    files = SimFiles()
    Landing(files, transactions=15).run()
    log = Landing(files, "second").open()
    settings = LandingConfig(root=tmp_path, retention=0.0)
    keeper = Housekeeper(log, settings, print, slots=lambda: read_slots(tmp_path))
    held = [keeper.held_bytes]
    for needed in (1, 3 * BLOCK):
        _write(tmp_path, "behind", needed)
        keeper.work()
        held.append(keeper.held_bytes)
    assert held[0] is None
    assert (held[1] or 0) > (held[2] or 0) > 0
    floor = log.floor
    assert floor > 0
    _write(tmp_path, "behind", 1)
    keeper.work()
    assert log.floor > floor
    assert keeper.held_bytes == 0


def test_no_slots(tmp_path: Path) -> None:
    """A landing that nobody serves has none."""
    assert read_slots(tmp_path) == []
