"""Acts in the main thread: none is lost, whatever the disk, the session and the process do meanwhile."""

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NoReturn

import pytest

from gaussdecode.daemon import acts
from gaussdecode.daemon.acts import Acts
from gaussdecode.daemon.control import ENDS, Act, ActQueue
from gaussdecode.daemon.status.facts import Running, Standing
from gaussdecode.settings.load import load

_SECONDS: Final = 60.0
_CONFIG: Final = """
slot: orders
source: {kind: postgresql, dsn: host=nowhere dbname=shop user=me, publication: [orders]}
landing: {root: ROOT}
"""


class _Pipeline:
    """A landing without one.

    Attributes:
        asked: titles whose existing rows were asked for.
        room: set while the disk has room.
        landed_entry: answer of what `end_entry` gives.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.room = threading.Event()
        self.room.set()
        self.landed_entry: bool | None = False
        self.landed = SimpleNamespace(durable=SimpleNamespace(lsn=1, entry=2))
        self.snapshots = SimpleNamespace(reach=lambda _: None)

    @property
    def is_waiting_for_space(self) -> bool:
        """As `Pipeline`."""
        return not self.room.is_set()

    def ask_snapshot(self, title: str) -> None:
        """As `Pipeline`: waits for room."""
        assert self.room.wait(_SECONDS)
        self.asked.append(title)

    def end_entry(self) -> Callable[[], bool | None]:
        """As `Pipeline`."""
        return lambda: self.landed_entry


class _Main:
    """The main thread, with acts that are carried out when it looks."""

    def __init__(self, directory: Path) -> None:
        path = directory / "orders.yaml"
        path.write_text(_CONFIG.replace("ROOT", str(directory / "landing")))
        self.queue = ActQueue(_SECONDS)
        self.acts = Acts(load(path), Running(standing=Standing("streaming")), self.queue)
        self.pipeline: Any = _Pipeline()  # Any: stands for a Pipeline

    def begin(self, name: str, table: str | None = None) -> Act:
        """Carry an act out as far as that goes at once."""
        act = Act(name, table, "me")
        self.acts.carry_out(act, self.pipeline)
        return act


@pytest.fixture
def main(tmp_path: Path) -> _Main:
    """One with a configuration of its own."""
    return _Main(tmp_path)


def _text(act: Act) -> str:
    assert act.answer is not None
    return act.answer.text


@pytest.mark.parametrize(
    ("name", "table"), [("rotate", None), ("pause", None), ("snapshot", "s.t")]
)
def test_who_asks_while_the_disk_is_full_is_told_so(
    main: _Main, name: str, table: str | None
) -> None:
    """The main thread does not wait; what was asked for is done once there is room."""
    main.pipeline.room.clear()
    act = main.begin(name, table)
    main.acts.look(main.pipeline)
    assert "the landing's disk is full" in _text(act)
    main.pipeline.room.set()
    main.pipeline.landed_entry = True
    main.acts.settle()
    assert main.pipeline.asked == ([] if table is None else ["s.t"])
    assert "disk is full" in _text(act), "the first answer stays"


def test_an_entry_of_a_session_that_failed_is_not_said_to_have_landed(main: _Main) -> None:
    """What had arrived comes again; a pause stays."""
    rotate, pause = main.begin("rotate"), main.begin("pause")
    main.pipeline.landed_entry = None
    main.acts.look(main.pipeline)
    assert "comes again" in _text(rotate)
    assert _text(pause).endswith("comes again; the pause is in force")
    assert main.acts.is_paused()


def test_nothing_of_an_act_is_left_to_a_pipeline_that_is_closed(
    main: _Main, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two at once on one publication come one after the other, and all is done before the end."""
    begun, goes_on = threading.Event(), threading.Event()
    running: list[str] = []

    def alter(*words: object) -> str:
        running.append(str(words[-1]))
        begun.set()
        assert goes_on.wait(_SECONDS)
        return f"altered for {words[-1]}"

    monkeypatch.setattr(acts, "add_table", alter)
    first = main.begin("add", "s.one")
    assert begun.wait(_SECONDS)
    second = main.begin("add", "s.two")
    assert running == ["one"]
    goes_on.set()
    rotate = main.begin("rotate")
    main.acts.settle()
    assert main.pipeline.asked == ["s.one", "s.two"]
    assert "existing rows are asked for" in _text(first)
    assert "existing rows are asked for" in _text(second)
    assert "comes again" in _text(rotate)


def test_who_asks_at_the_end_is_told_that_it_is_the_end(main: _Main) -> None:
    """Who is in the queue, and who comes after that."""
    answers: list[str] = []
    asks = threading.Thread(target=lambda: answers.append(main.queue.ask("pause", None, "me").text))
    asks.start()
    main.acts.close()
    asks.join()
    assert answers == [ENDS]
    assert main.queue.ask("resume", None, "me").text == ENDS


def test_a_system_without_threads_ends_no_daemon(
    main: _Main, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The act is refused."""

    def refuse(_: threading.Thread) -> NoReturn:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert "no more threads" in _text(main.begin("snapshot", "s.t"))
