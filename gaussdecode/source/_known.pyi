from typing import final

@final
class KnownMessages:
    count: int
    held_bytes: int
    eviction_count: int
    def __init__(self, memory_limit: int = ..., directory: str | None = ...) -> None: ...
    def seen(self, message: bytes, oid: int) -> bool: ...
