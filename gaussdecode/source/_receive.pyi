from enum import IntEnum
from typing import final

from gaussdecode.ipc.control import Control
from gaussdecode.source._dispatch import Dispatcher
from gaussdecode.source._known import KnownMessages
from gaussdecode.source._status import StatusClock

class End(IntEnum):
    RELATION = 1
    TYPE = 2
    STOP = 3
    COPY = 4
    LOST = 5
    SILENT = 6
    DECODER = 7
    DONE = 8

@final
class Receiver:
    control: Control
    dispatcher: Dispatcher
    clock: StatusClock
    end_lsn: int
    server_wal_end: int
    stray_count: int
    def __init__(
        self,
        control: Control,
        dispatcher: Dispatcher,
        clock: StatusClock,
        known: KnownMessages | None = None,
    ) -> None: ...
    def attach_connection(
        self,
        owner: object,
        connection: int,
        functions: dict[str, int],
        socket_fd: int,
        is_encrypted: bool,
    ) -> None: ...
    def attach_capture(self, frames: bytes | memoryview) -> None: ...
    def run(self) -> End: ...
    def finish(self) -> End: ...
    def frame(self) -> bytes: ...
    def define(self, oid: int, record: bytes | None) -> None: ...
    def disconnect(self) -> None: ...
