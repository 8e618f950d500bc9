from collections.abc import Callable
from enum import IntEnum
from typing import TypeVar

from gaussdecode.errors import StreamError
from gaussdecode.ipc.control import Control
from gaussdecode.source._dispatch import Dispatcher
from gaussdecode.source._status import StatusClock

_T = TypeVar("_T")

class End(IntEnum):
    RELATION = 1
    TYPE = 2
    STOP = 3
    COPY = 4
    LOST = 5
    SILENT = 6
    DECODER = 7
    DONE = 8
    NOTICE = 11
    TABLE = 12

class Receiver:
    control: Control
    dispatcher: Dispatcher
    clock: StatusClock
    end_lsn: int
    server_wal_end: int
    worker_count: int
    worker_status_count: int
    stray_count: int
    is_narrow: bool
    def __init__(self, control: Control, dispatcher: Dispatcher, clock: StatusClock) -> None: ...
    def attach_capture(self, frames: bytes | memoryview) -> None: ...
    def run(self) -> End: ...
    def finish(self) -> End: ...
    def attend(self) -> None: ...
    def in_worker(self, work: Callable[[], _T]) -> _T: ...
    def locate(self, error: StreamError) -> None: ...
    def disconnect(self) -> None: ...
