"""Tests for `gaussdecode.host.process_memory`: what machine and control groups allow."""

from pathlib import Path
from typing import Final

from gaussdecode.host.process_memory import process_memory_bytes

MIB: Final = 1 << 20


def test_process_memory_is_known_here() -> None:
    """The machine tells how much memory it has."""
    memory = process_memory_bytes()
    assert memory is not None
    assert memory > MIB


def test_the_least_of_all_control_groups_counts(tmp_path: Path) -> None:
    """A process may have what its own group and every group above it allow."""
    inner = tmp_path / "system.slice" / "gaussdecode@orders.service"
    inner.mkdir(parents=True)
    own = tmp_path / "own"
    own.write_text("0::/system.slice/gaussdecode@orders.service\n")
    machine = process_memory_bytes(tmp_path, own)
    (inner / "memory.max").write_text("max\n")
    assert process_memory_bytes(tmp_path, own) == machine
    (inner / "memory.max").write_text("3145728\n")
    assert process_memory_bytes(tmp_path, own) == 3 * MIB
    (inner.parent / "memory.max").write_text("2097152\n")
    assert process_memory_bytes(tmp_path, own) == 2 * MIB
    (tmp_path / "memory.max").write_text("1048576\n")
    assert process_memory_bytes(tmp_path, own) == MIB
