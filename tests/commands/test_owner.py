"""Tests for `gaussdecode.operations.owner`: who a command works as.

That root becomes the owner, with all that it means, is seen in `tests/integration/test_live_unit.py`.
"""

import argparse
import inspect
import os
import pwd
from collections.abc import Iterator
from pathlib import Path

import pytest

from gaussdecode.cli import command_names, load_command
from gaussdecode.operations import owner
from gaussdecode.operations.owner import Account, landing_owner
from gaussdecode.settings.load import load

_PLACES = {"config", "root", "target"}
# Commands that use nothing of a landing, or make one of their own.
_AS_CALLER = {"status", "top", "capture", "demo"}

CONFIG = """\
slot: orders
source: {{kind: capture, file: /nowhere}}
landing: {{root: {root}}}
"""


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Names of all arguments, those of actions among them."""
    for action in parser._actions:
        yield action.dest
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                yield from _arguments(sub)


def test_every_command_that_works_on_a_landing_becomes_its_owner() -> None:
    """Whoever names a configuration, a landing or a target goes through one module."""
    for name in command_names():
        command = load_command(name)
        parser = argparse.ArgumentParser()
        command.add_arguments(parser)
        if not _PLACES & set(_arguments(parser)) or name in _AS_CALLER:
            continue
        source = inspect.getsource(command)  # type: ignore[arg-type]  # a module
        assert "load_as_owner(args.config" in source or "work_as_owner_of(args." in source, name


def test_landing_belongs_to_its_owner_or_will(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An existing landing to its directory's owner; a missing one to the unit's, or the one above."""
    path = tmp_path / "orders.yaml"
    root = tmp_path / "landing"
    path.write_text(CONFIG.format(root=root))
    config = load(path)
    unit = pwd.getpwnam("nobody")
    own = Account.of(os.geteuid(), os.getegid())
    monkeypatch.setattr(owner, "unit_user", lambda _: None)
    assert landing_owner(config) == own
    monkeypatch.setattr(owner, "unit_user", lambda _: unit)
    assert landing_owner(config) == Account.of(unit.pw_uid, unit.pw_gid)
    root.mkdir()
    (root / "layout.json").touch()
    assert landing_owner(config) == own


def test_user_without_a_name_is_its_number() -> None:
    """In a container nobody may have named it."""
    account = Account.of(4_000_000_000, 4_000_000_001)
    assert (account.gid, str(account)) == (4_000_000_001, "4000000000:4000000001")
