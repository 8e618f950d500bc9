from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Protocol, final

from gaussdecode.collect._columns import Accumulator
from gaussdecode.collect.tables import Landed
from gaussdecode.ipc.ring import Ring
from gaussdecode.model.account import Counts
from gaussdecode.model.histogram import Counted

PUMP_TIME: Final[int]
PUMP_ATTENTION: Final[int]
PUMP_END: Final[int]
REASONS: Final[tuple[str, ...]]

# Gives accumulators; `table_registry.TableRegistry` is one.
class TableSource(Protocol):
    # Of a version that is described; None when its rows are not wanted.
    def register(self, version: int, definition: bytes) -> Accumulator[Landed] | None: ...
    # Of a version that `forget_version` was told of; None when it was never described.
    def recall(self, version: int) -> Accumulator[Landed] | None: ...
    # The description of a registered version; None stands for the accumulator of a packed one.
    def definition(self, version: int, accumulator: Accumulator[Landed] | None) -> bytes: ...
    # Of rows in the file of a prepared transaction.
    def prepared_table(self, definition: bytes) -> Accumulator[Landed] | None: ...
    # DDL that landed; rows of its transaction before it have landed, those behind it have not.
    def ddl_came(self, content: bytes, lsn: int, seq: int) -> None: ...
    # Of the same table's rows without an identity.
    def keyless(self, accumulator: Accumulator[Landed]) -> Accumulator[Landed]: ...

# Is told what happens; `collector.Collector` is one.
class Listener(Protocol):
    # It is full.
    def flush(self, accumulator: Accumulator[Landed]) -> None: ...
    # All accumulators together exceed their budget.
    def relieve(self) -> None: ...
    # Rows go into one that is not current.
    def change_over(self, accumulator: Accumulator[Landed]) -> None: ...
    # A table was truncated.
    def truncated(
        self, accumulator: Accumulator[Landed], lsn: int, seq: int, flags: int
    ) -> None: ...
    # The server sent a notice.
    def noticed(self, code: int, text: bytes, lsn: int) -> None: ...
    # A transaction came that has landed; only with `is_compared`.
    def resent(
        self,
        end_lsn: int,
        xid: int,
        time_us: int,
        row_count: int,
        has_origin: bool,
        is_of_new_tables: bool,
        user: bytes,
        csn: int,
    ) -> None: ...
    # All that has landed came again; only with `is_compared`.
    def caught_up(self) -> None: ...
    # A prepared transaction has ended whose rows were in a file.
    def prepared_ended(self, file: Any) -> None: ...  # Any: what `kept` gave

class SpoolLike(Protocol):
    def write(self, data: memoryview) -> int: ...
    def read_into(self, offset: int, target: memoryview) -> None: ...
    def free(self, offset: int, size: int) -> None: ...

@final
class Assembler:
    boundary_lsn: Final[int]
    arrived_lsn: Final[int]
    arrived_csn: Final[int]
    last_commit_time_us: Final[int]
    last_csn: Final[int]
    held_bytes: Final[int]
    retained_bytes: Final[int]
    spooled_bytes: Final[int]
    spooled_batches: Final[int]
    spooling: Final[tuple[int, int, int] | None]
    spooled_count: Final[int]
    streamed_count: Final[int]
    aborted_count: Final[int]
    stray_count: Final[int]
    transaction_count: Final[int]
    row_count: Final[int]
    resent_count: Final[int]
    foreign_count: Final[int]
    is_comparing: Final[bool]
    empty_count: Final[int]
    heartbeat_count: Final[int]
    waiting_count: Final[int]
    waiting_since_ns: Final[int]
    oldest_commit_us: Final[int]
    keepalive_is_urgent: Final[bool]
    given_up_count: Final[int]
    lost_csn: Final[int]
    dispatch_seq: Final[int]
    waited_ns: Final[int]
    @property
    def worked_ns(self) -> int: ...
    @property
    def is_transaction_open(self) -> bool: ...
    @property
    def open_count(self) -> int: ...
    @property
    def finished_count(self) -> int: ...
    @property
    def can_hand_over(self) -> bool: ...
    def __new__(
        cls,
        tables: TableSource,
        listener: Listener,
        transactions: Accumulator[Landed],
        messages: Accumulator[Landed],
        ddl: Accumulator[Landed],
        spool: SpoolLike,
        *,
        resume_lsn: int,
        memory_limit: int,
        row_limit: int,
        byte_limit: int,
        budget: int,
        only_local: bool = True,
        skip_empty: bool = False,
        start_csn: int = 0,
        excluded_users: Sequence[bytes] = (),
        is_compared: bool = False,
        total_limit: int | None = None,
        kept: Iterable[object] = (),
        by_csn: bool = False,
        resume_csn: int = 0,
        resume_until: int = 0,
        first_csn: int = 0,
    ) -> Assembler: ...
    def pass_csn(self, csn: int, lsn: int) -> None: ...
    def give_up(self) -> bool: ...
    def keep_up_to(self, csn: int) -> None: ...
    @property
    def least_given_up(self) -> int | None: ...
    @property
    def is_given_up(self) -> bool: ...
    @staticmethod
    def layouts() -> tuple[str, ...]: ...
    def unkept(self) -> list[int]: ...
    def dump(self, xid: int) -> tuple[dict[str, Any], Iterator[memoryview]]: ...
    def keep(self, file: object) -> None: ...
    def show(self, xid: int) -> None: ...
    @property
    def prepared_transactions(self) -> list[tuple[bytes, int, int, int, int]]: ...
    def taken(self, byte_count: int) -> None: ...
    def forget_version(self, version: int) -> None: ...
    def forget(self) -> None: ...
    def absorb_bytes(self, entry: bytes | bytearray | memoryview) -> None: ...
    def sums(self) -> tuple[dict[str, int], dict[str, int], dict[str, Counts]]: ...
    @property
    def left_out_rows(self) -> dict[str, int]: ...
    @property
    def durations(self) -> dict[str, Counted]: ...
    def answered(self) -> None: ...
    def committed(self) -> None: ...
    def pump(self, rings: Sequence[Ring], seconds: float) -> int: ...
