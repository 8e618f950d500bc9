from array import array
from collections.abc import Callable
from typing import final

from gaussdecode.model.shape import Definition, Shape

@final
class Translator:
    lsn: int
    end_lsn: int
    xid: int
    in_transaction: bool
    is_open: bool
    record_count: int
    filtered_count: int
    heartbeat_count: int
    unknown_part_count: int
    unread_time_count: int
    unconverted_count: int
    held_bytes: int
    def __init__(
        self,
        style: bytes,
        is_batched: bool,
        encoding: str,
        memory_limit: int = ...,
        takes_ddl: bool = ...,
    ) -> None: ...
    def describe(self) -> Shape: ...
    def define(self, definition: Definition) -> None: ...
    def feed_bytes(
        self,
        payload: bytes | array[int] | memoryview,
        header_lsn: int = 0,
        define: Callable[[Shape], Definition] | None = None,
    ) -> list[bytes]: ...
    def count_messages(self, payloads: list[bytes]) -> int: ...
