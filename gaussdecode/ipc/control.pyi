from enum import IntEnum
from typing import Final, final

DECODER_LIMIT: Final[int]

class Word(IntEnum):
    DURABLE_LSN = 0
    STOP_REQUESTED = 1
    FINISHED = 2
    MAIN_HEARTBEAT_NS = 3
    DISK_WAIT = 4
    GO = 5
    READER_HEARTBEAT_NS = 16
    RECEIVED_BYTES = 17
    RECEIVED_MESSAGES = 18
    RECEIVED_LSN = 19
    SERVER_WAL_END = 20
    LAST_SERVER_TIME_US = 21
    CONFIRMED_LSN = 22
    STATUS_SENT_COUNT = 23
    STALLED_NS = 24
    WAITED_NS = 25
    BUSY_NS = 26
    BATCHES = 27
    RELATIONS = 28
    TRANSACTION_OPEN = 29
    LAST_RECEIVE_NS = 30
    NOTICES = 31
    HEARTBEATS = 32
    HEARTBEAT_LSN = 33
    HEARTBEAT_TIME_US = 34
    IDLE_LSN = 35
    PACE = 36
    PACE_CHANGES = 37
    PACE_TRIALS = 38
    HEARTBEAT_FLUSHED_LSN = 39
    PACE_RATE = 40

class DecoderField(IntEnum):
    HEARTBEAT_NS = 0
    BATCHES = 1
    WIRE_BYTES = 2
    ROWS = 3
    BUSY_NS = 4
    WAITED_INPUT_NS = 5
    WAITED_OUTPUT_NS = 6
    MISFITS = 7

def word_of_decoder(decoder_index: int, field: DecoderField) -> int: ...

@final
class Control:
    @property
    def fd(self) -> int: ...
    @staticmethod
    def create() -> Control: ...
    @staticmethod
    def attach(fd: int) -> Control: ...
    def get(self, word: int) -> int: ...
    def set(self, word: int, value: int) -> int: ...
    def add(self, word: int, value: int) -> int: ...
    def raise_to(self, word: int, value: int) -> int: ...
    def snapshot(self) -> dict[str, int]: ...
    def decoder_snapshot(self, decoder_index: int) -> dict[str, int]: ...
    def close(self) -> None: ...
