"""Make a recording longer: the same transactions again and again, at ever higher positions.

A recording of some hundred megabytes takes a server a while to fill; streams of many
gigabytes are made from it. Every copy is the recording with its positions raised, so that it
follows the one before as if the server had gone on. What a row holds stays as it is.

    python bench/recording.py IN OUT --times N
"""

import argparse
import mmap
import struct
from pathlib import Path
from typing import Final

import numpy as np

TRAILER: Final = struct.Struct("<IQQ")
_HEAD: Final = 12  # magic and length of the header
_BODY: Final = 25  # of XLogData: where the plug-in's message begins
# Where a message holds positions, from its letter on.
_POSITIONS: Final = {ord("B"): (1,), ord("C"): (2, 10)}


def find_positions(frames: bytes) -> tuple[np.ndarray, int]:
    """Offsets of all positions, and the number of frames."""
    offsets: list[int] = []
    at = count = 0
    while at < len(frames):
        (size,) = struct.unpack_from("<I", frames, at)
        payload = at + 4
        offsets.append(payload + 1)
        if frames[payload] == ord("w"):
            offsets.append(payload + 9)
            body = payload + _BODY
            offsets.extend(body + shift for shift in _POSITIONS.get(frames[body], ()))
        at = payload + size
        count += 1
    return np.array(offsets, dtype=np.int64), count


def write_repeated(target: Path, head: bytes, frames: bytes, count: int, times: int) -> int:
    """Write a header and frames `times` over, each time higher; give the bytes written."""
    offsets, found = find_positions(frames)
    assert found == count, f"{found} frames, not {count}"
    data = np.frombuffer(frames, dtype=np.uint8).copy()
    places = offsets[:, None] + np.arange(8)
    before = data[places].view(">u8").ravel().astype(np.uint64)
    is_set = before > 0
    step = np.uint64(int(before.max()) - int(before[is_set].min()) + 1024)
    with target.open("wb") as file:
        file.write(head)
        for copy in range(times):
            moved = np.where(is_set, before + np.uint64(copy) * step, before)
            data[places] = moved.astype(">u8").view(np.uint8).reshape(-1, 8)
            file.write(data.data)
        file.write(TRAILER.pack(0, count * times, len(frames) * times))
        return file.tell()


def grow(source: Path, target: Path, times: int) -> int:
    """Write a recording `times` over; give the bytes written."""
    whole = source.read_bytes()
    (size,) = struct.unpack_from("<I", whole, 8)
    head, frames = whole[: _HEAD + size], whole[_HEAD + size : -TRAILER.size]
    _, count, _ = TRAILER.unpack(whole[-TRAILER.size :])
    return write_repeated(target, head, frames, count, times)


def shorten(source: Path, target: Path, size: int) -> int:
    """Write the beginning of a recording, as many whole frames as fit; give the bytes written.

    A transaction that is cut off is never landed.
    """
    with source.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as whole:
        (head,) = struct.unpack_from("<I", whole, 8)
        first = at = _HEAD + head
        end, count = min(size, len(whole)) - TRAILER.size, 0
        while (after := at + 4 + struct.unpack_from("<I", whole, at)[0]) <= end:
            at, count = after, count + 1
        with target.open("wb") as shorter:
            shorter.write(memoryview(whole)[:at].toreadonly())
            shorter.write(TRAILER.pack(0, count, at - first))
            return shorter.tell()


def main() -> None:
    """Grow one recording."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--times", type=int, required=True)
    args = parser.parse_args()
    print(f"{args.target}: {grow(args.source, args.target, args.times)} bytes")


if __name__ == "__main__":
    main()
