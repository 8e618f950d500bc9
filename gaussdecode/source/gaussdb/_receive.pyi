import socket
from typing import final

from gaussdecode.ipc.control import Control
from gaussdecode.model.shape import Definition
from gaussdecode.source._dispatch import Dispatcher
from gaussdecode.source._receive import Receiver
from gaussdecode.source._status import StatusClock
from gaussdecode.source.gaussdb.translate._translator import Translator

@final
class GaussReceiver(Receiver):
    translator: Translator
    server_error: bytes | None
    reads_openssl: bool
    failure: str | None
    def __init__(
        self,
        control: Control,
        dispatcher: Dispatcher,
        clock: StatusClock,
        translator: Translator,
        max_message_bytes: int = ...,
        is_serial: bool = ...,
        is_advancing: bool = ...,
    ) -> None: ...
    def attach_socket(
        self, sock: socket.socket, pending: bytes, settings: dict[str, str] | None = ...
    ) -> None: ...
    def frame(self) -> bytes: ...
    def reply(self, message: bytes | None) -> None: ...
    def start_from(self, csn: int, lsn: int) -> None: ...
    def define(self, definition: Definition, record: bytes | None) -> None: ...
