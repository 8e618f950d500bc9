from typing import final

from gaussdecode._wire import BatchDecoder
from gaussdecode.ipc.ring import Ring

@final
class Dispatcher:
    rings: list[Ring]
    decoder_count: int
    dispatch_seq: int
    batch_bytes: int
    version_count: int
    is_waiting: bool
    ends_left: int
    has_failed: bool
    def __init__(
        self,
        rings: list[Ring],
        batch_bytes: int = ...,
        decoder: BatchDecoder | None = None,
        kept_bytes: int = ...,
    ) -> None: ...
    def add_relation(self, record: bytes) -> None: ...
    def begin_end(self) -> None: ...
    def close_batch(self) -> None: ...
    def put_error(self, payload: bytes) -> None: ...
    def add_message(self, message: bytes) -> None: ...
    def try_flush(self) -> bool: ...
