"""Run a decoder process: ``python -m gaussdecode.decode.worker``, started by the daemon.

It gets one line of settings on standard input: the descriptors of its two rings and of the control block. It
gives one decoded batch for every raw batch, in order. Exit statuses: 0 after the end of the stream, 76 when
bytes broke the format (the collector finds the reason in the batch), 70 when a neighbour process died. It
knows no servers, files or other decoders, and imports no pyarrow.
"""

from typing import Any

from gaussdecode.decode._decoder import DecoderLoop
from gaussdecode.ipc.control import Control
from gaussdecode.ipc.process import enter_child
from gaussdecode.ipc.ring import Ring


def run(settings: dict[str, Any]) -> None:  # Any: JSON
    """Decode until the end of the stream.

    Args:
        settings: ``raw_ring_fds`` (consumer's end), ``decoded_ring_fds`` (producer's end),
            ``control_fd``, ``decoder_index``, ``kept_buffer_bytes``, ``max_row_bytes``,
            ``defers_large_rows``.

    Raises:
        WireError: bytes that do not follow the format.
        ChildError: the reader or the collector is gone.
    """
    raw = Ring.attach_consumer(settings["raw_ring_fds"])
    decoded = Ring.attach_producer(settings["decoded_ring_fds"])
    control = Control.attach(settings["control_fd"])
    try:
        kept_bytes = settings["kept_buffer_bytes"]
        DecoderLoop(
            raw,
            decoded,
            control,
            settings["decoder_index"],
            kept_bytes,
            settings["max_row_bytes"],
            settings["defers_large_rows"],
        ).run()
    finally:
        decoded.close()
        raw.close()
        control.close()


def main() -> None:
    """Live and die as a child of the daemon."""
    settings, reports = enter_child()
    try:
        run(settings)
    except Exception as error:  # noqa: BLE001 - whatever it was, the daemon is to know
        reports.fail(error)


if __name__ == "__main__":
    main()
