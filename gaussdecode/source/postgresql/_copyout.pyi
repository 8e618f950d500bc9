from collections.abc import Mapping

class CopyOut:
    has_failed: bool
    is_waiting: bool
    progress: int
    def __init__(self, connection: int, addresses: Mapping[str, int]) -> None: ...
    def read(self, wanted: int) -> bytes: ...
