"""Carry out the acts of an operator in the main thread: pause, resume, reload, reconnect, rotate, snapshot, add, drop.

Nothing of this is durable by itself. A pause ends with the process: a restart resumes. A reload takes the
file, which the next start reads anyway; the daemon keeps what it has read once a stream has begun with it,
and goes back to the former configuration if none begins. A snapshot is a request in the landing, as that
of ``gaussdecode snapshot``. To add a table alters a publication first, then requests the snapshot: after a
crash between the two the act can be asked for again.

The main thread must not wait for a server or for room on the disk: it feeds the watchdog. So acts that do run
in threads of their own, one after the other. The pipeline is let go of when they have ended.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from gaussdecode import logs
from gaussdecode.daemon.control import ENDS, Act, ActQueue
from gaussdecode.daemon.pipeline import Pipeline
from gaussdecode.daemon.status.facts import Pause, Running
from gaussdecode.errors import ConfigError, GaussDecodeError, error_text
from gaussdecode.land.failpoints import ActStep
from gaussdecode.model.lsn import Lsn
from gaussdecode.model.title import split_title, table_title
from gaussdecode.settings.load import load
from gaussdecode.settings.reload import compare
from gaussdecode.settings.rules import SourceKind
from gaussdecode.settings.sections import Config
from gaussdecode.source.address import SourceAddress, source_address
from gaussdecode.source.postgresql.publication import add_table, drop_table
from gaussdecode.source.relations import white_list

_log = logs.get_logger("daemon")
_Change = Callable[[SourceAddress, Sequence[str], str, str], str | None]
_KEPT_WAL = "the server keeps WAL for the slot until `resume`"
_FULL = "not done yet: the landing's disk is full. It is not taken back, and the log has its end"
_COMES_AGAIN = "the session ended before; what had arrived comes again"
_SETTLE_SECONDS: Final = 20.0  # for acts in threads, when the pipeline is let go of; arbitrary


class Acts:
    """What operators have asked for, and what waits for its end.

    Args:
        config: the configuration that the daemon begins with.
        running: shows the pause.
        queue: has the acts.

    Attributes:
        next: configuration to go on with once the session has ended; None without a reload.
        is_hurried: a new session was asked for: nobody waits before it.
        reread_certificate: reads the certificate of the monitoring port again; None where it has none.
    """

    def __init__(self, config: Config, running: Running, queue: ActQueue) -> None:
        self._config = config
        self._former: Config | None = None  # until a stream has begun with the one that was read
        self._running = running
        self._queue = queue
        self._landing: list[tuple[Act, Callable[[], bool | None], Callable[[], str]]] = []
        self._for_stream: list[tuple[Act, str]] = []
        self._working: list[tuple[Act, threading.Thread]] = []
        self._turn = threading.Lock()  # of the threads: two acts on one publication would collide
        self.next: Config | None = None
        self.is_hurried = False
        self.reread_certificate: Callable[[], str] | None = None

    def is_paused(self) -> bool:
        """Nothing more is to land."""
        return self._running.pause is not None

    def look(self, pipeline: Pipeline) -> None:
        """Called several times per second."""
        for act in self._queue.take():
            self.carry_out(act, pipeline)
        for item in list(self._landing):
            act, has_landed, tell = item
            landed = has_landed()
            if landed is not False:
                self._landing.remove(item)
                _end(act, tell() if landed else None)
        self._working = [item for item in self._working if item[1].is_alive()]
        if pipeline.is_waiting_for_space:
            for act in self._unanswered():
                act.refuse(_FULL)

    def _unanswered(self) -> list[Act]:
        acts = [act for act, _, _ in self._landing] + [act for act, _ in self._working]
        return [act for act in acts if act.answer is None]

    def settle(self) -> None:
        """The sessions are over, and the pipeline is let go of: end what needs it."""
        deadline = time.monotonic() + _SETTLE_SECONDS
        for _, thread in self._working:
            thread.join(max(0.0, deadline - time.monotonic()))
        for act, has_landed, tell in self._landing:
            _end(act, tell() if has_landed() else None)
        self._landing.clear()

    def carry_out(self, act: Act, pipeline: Pipeline) -> None:
        """Begin an act, or refuse it."""
        if self._running.standing.state == "starting":
            act.refuse("the landing is being recovered; ask again when this is done")
            return
        with _refusing(act):
            getattr(self, f"_{act.name}")(act, pipeline)

    def _pause(self, act: Act, pipeline: Pipeline) -> None:
        if self._is_over(act):
            return
        self._running.pause = pause = Pause(act.by, time.time())
        has_landed = pipeline.end_entry()
        self._landing.append(
            (act, has_landed, lambda: f"{pause.text}; {_landed(pipeline)}; {_KEPT_WAL}")
        )

    def _resume(self, act: Act, pipeline: Pipeline) -> None:
        pause, self._running.pause = self._running.pause, None
        act.finish("it was not paused" if pause is None else f"goes on; it was {pause.text}")

    def _is_over(self, act: Act) -> bool:
        """Answer an act that has nothing to end: in a pause one more entry would land what is held back."""
        pause = self._running.pause
        if pause is not None:
            act.finish(f"{pause.text} already; nothing more lands until `resume`")
        return pause is not None

    def _rotate(self, act: Act, pipeline: Pipeline) -> None:
        told = "" if self.reread_certificate is None else f"; {self.reread_certificate()}"
        if self._is_over(act):
            return
        self._landing.append((act, pipeline.end_entry(), lambda: _landed(pipeline) + told))

    def _reconnect(self, act: Act, pipeline: Pipeline) -> None:
        pipeline.restart_session()
        self.is_hurried = True
        self._for_stream.append((act, "a new session streams, from the durable position on"))

    def _snapshot(self, act: Act, pipeline: Pipeline) -> None:
        reason = self._config.snapshot_refusal
        if reason is not None:
            raise ConfigError(reason)
        title = title_of(act.table or "")

        def work() -> str:
            pipeline.ask_snapshot(title)
            return f"the existing rows of {title} are asked for; `gaussdecode status` shows them"

        self._in_thread(act, work)

    def _add(self, act: Act, pipeline: Pipeline) -> None:
        schema, name = split_title(title_of(act.table or ""))
        listed = self._config.decoding.white_table_list
        if not white_list(self._config.decoding).allows(schema, name):
            raise ConfigError(
                "decoding.white-table-list does not have it, and no act changes the file; write there "
                f"white-table-list: {listed},{schema}.{name} and reload, then ask again"
            )

        def work() -> str:
            done = self._on_publications(add_table, schema, name, pipeline)
            reason = self._config.snapshot_refusal
            if reason is not None:
                return f"{done}; its existing rows do not land: {reason}"
            try:
                pipeline.ask_snapshot(table_title(schema, name))
            except GaussDecodeError as error:
                why = f"its existing rows are not asked for: {error_text(error)}; ask again"
                raise ConfigError(f"{done}, but {why}") from error
            pipeline.snapshots.reach(ActStep.ROWS_ASKED)
            return f"{done}; its existing rows are asked for; `gaussdecode status` shows them"

        self._in_thread(act, work)

    def _drop(self, act: Act, pipeline: Pipeline) -> None:
        schema, name = split_title(title_of(act.table or ""))
        if self._config.source.kind is not SourceKind.POSTGRESQL:
            raise ConfigError(
                "the server has no publication: take it out of decoding.white-table-list, and reload"
            )
        if self._config.landing.on_suspect == "stop":
            raise ConfigError(
                "landing.on-suspect is stop, and the daemon would end: changes that are not published "
                "are suspect; set record, and reload"
            )

        def work() -> str:
            done = self._on_publications(drop_table, schema, name, pipeline)
            return f"{done}; what has landed stays, and a suspect entry says from where on changes are missing"

        self._in_thread(act, work)

    def _in_thread(self, act: Act, work: Callable[[], str]) -> None:
        """Do what waits for a server or for the disk, beside the main thread."""

        def run() -> None:
            with self._turn, _refusing(act):
                act.finish(work())

        thread = threading.Thread(target=run, name="act", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            raise ConfigError("the system gives no more threads; ask again") from None
        self._working.append((act, thread))

    def _on_publications(self, change: _Change, schema: str, name: str, pipeline: Pipeline) -> str:
        """Change the publications of each source: in one transaction each, for there is none over several servers.

        After a crash or an error between two sources the act is asked for again: a source that has it done is passed.
        """
        if self._config.source.kind is not SourceKind.POSTGRESQL:
            return "the server sends it without a publication"
        is_several, told = self._config.is_several, list[str]()
        for source, of in self._config.members.items():
            try:
                done = change(source_address(of), of.source.publication, schema, name)
            except GaussDecodeError as error:
                if not is_several:
                    raise
                before = f"{'; '.join(told)}, but " if told else ""
                raise ConfigError(
                    f"{before}source {source}: {error_text(error)}; ask again"
                ) from error
            if done is not None:
                told.append(f"source {source}: {done}" if is_several else done)
                pipeline.snapshots.reach(ActStep.PUBLICATION_ALTERED)
        if not told:
            raise ConfigError("no configured publication has it")
        return "; ".join(told)

    def _reload(self, act: Act, pipeline: Pipeline) -> None:
        if self._former is not None:
            raise ConfigError("another reload is not over: no stream has begun yet")
        config, taken, refused = compare(self._config, load(self._config.path))
        kept = f"; unchanged until a restart: {', '.join(refused)}" if refused else ""
        if not taken:
            act.finish(f"nothing that a reload takes has changed{kept}")
            return
        self._former, self._config, self.next = self._config, config, config
        self.is_hurried = True
        self._for_stream.append((act, f"taken: {', '.join(taken)}{kept}"))

    # ---- told by the supervisor --------------------------------------------------------

    def take_next(self) -> Config | None:
        """The configuration to go on with, once."""
        config, self.next = self.next, None
        return config

    def has_begun(self) -> None:
        """A stream has begun."""
        for act, text in self._for_stream:
            act.finish(text)
            if act.name == "reload":
                _log.warning(logs.Event.CONFIG_RELOADED, by=act.by, text=text)
        self._for_stream.clear()
        self._former = None

    def has_failed(self, error: GaussDecodeError) -> bool:
        """A session has ended in an error; true where the former configuration comes back.

        It says so to those who wait for a stream.
        """
        reason = error_text(error)
        is_back = self._former is not None
        if is_back:
            reason = f"no stream begins with what was read, so nothing has changed: {reason}"
            _log.error(logs.Event.RELOAD_REFUSED, reason=reason)
            assert self._former is not None
            self._config = self.next = self._former
            self._former = None
        for act, _ in self._for_stream:
            act.refuse(reason)
        self._for_stream.clear()
        return is_back

    def close(self) -> None:
        """Answer everybody who still waits, and who asks from now on: the daemon ends."""
        waiting = self._unanswered() + [act for act, _ in self._for_stream]
        for act in waiting + self._queue.close():
            act.refuse(ENDS)


@contextlib.contextmanager
def _refusing(act: Act) -> Iterator[None]:
    """Answer with an error of what is done."""
    try:
        yield
    except GaussDecodeError as error:
        act.refuse(error_text(error))
    except OSError as error:
        act.refuse(error.strerror or type(error).__name__)


def _end(act: Act, told: str | None) -> None:
    """End an act that waited for an entry; None where the session ended before."""
    if told is not None:
        act.finish(told)
    else:
        paused = "; the pause is in force" if act.name == "pause" else ""
        act.refuse(f"{_COMES_AGAIN}{paused}")


def title_of(table: str) -> str:
    """The title of a table that an operator named.

    Raises:
        ConfigError: it is none.
    """
    try:
        return table_title(*split_title(table))
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _landed(pipeline: Pipeline) -> str:
    durable = pipeline.landed.durable
    return f"what had arrived has landed, up to {Lsn(durable.lsn)} in entry {durable.entry}"
