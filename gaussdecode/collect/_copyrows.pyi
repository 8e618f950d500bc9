from gaussdecode.collect._columns import Accumulator
from gaussdecode.collect.tables import Landed

class CopyRows:
    def __init__(
        self, relation: bytes, oid: int, column_count: int, accumulator: Accumulator[Landed]
    ) -> None: ...
    def add(self, lines: bytes) -> int: ...
