from typing import final

from gaussdecode.ipc.control import Control
from gaussdecode.source._dispatch import Dispatcher
from gaussdecode.source._receive import Receiver
from gaussdecode.source._status import StatusClock
from gaussdecode.source.postgresql._known import KnownMessages

@final
class PostgresReceiver(Receiver):
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
        ssl: int = 0,
        has_pending: int = 0,
    ) -> None: ...
    @property
    def is_in_block(self) -> bool: ...
    @property
    def has_xid(self) -> bool: ...
    def cut_off(self) -> None: ...
    def frame(self) -> bytes: ...
    def define(self, oid: int, record: bytes | None) -> None: ...
