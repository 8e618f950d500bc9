import numpy as np
import numpy.typing as npt

def xlog_data(
    content: bytes,
    ends: npt.NDArray[np.int64],
    starts: npt.NDArray[np.uint64],
    stops: npt.NDArray[np.uint64],
    first: int,
    last: int,
    time_us: int,
) -> bytes: ...
def data_rows(
    content: bytes,
    ends: npt.NDArray[np.int64],
    starts: npt.NDArray[np.uint64],
    xids: npt.NDArray[np.int64],
    columns: bytes,
    first: int,
    last: int,
) -> bytearray: ...
