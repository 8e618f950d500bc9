from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

class BoundTable:
    def __init__(
        self,
        plan: Any,  # Any: `plan.TablePlan`, which imports this module
        heads: tuple[bytes, ...],
        length: int,
        op: pa.Array,
        unchanged: pa.Array | None,
        raw: pa.Array | None,
        old: pa.Array | None,
        new_columns: list[tuple[Any, pa.Array]],  # Any: `plan.ColumnPlan`
        old_columns: list[tuple[Any, pa.Array]],
        truncate_rows: npt.NDArray[np.int64],
        truncate_flags: npt.NDArray[np.uint8],
    ) -> None: ...

class Writer:
    state: Any  # Any: of its kind
    def __init__(self, *, is_lazy: bool = False) -> None: ...
    def write(
        self,
        xid: npt.NDArray[np.int64],
        end_lsn: npt.NDArray[np.uint64],
        commit_lsn: npt.NDArray[np.uint64],
        first_lsn: npt.NDArray[np.uint64],
        csn: npt.NDArray[np.int64],
        time_us: npt.NDArray[np.int64],
        row_ends: npt.NDArray[np.int64],
        skipped: npt.NDArray[np.uint8],
        row_table: npt.NDArray[np.int32],
        row_index: npt.NDArray[np.int64],
        change_lsn: npt.NDArray[np.uint64],
        tables: list[BoundTable],
        is_continued: bool,
        is_open: bool,
    ) -> tuple[bytes, bytes, bytes, bytes, bytes]: ...
