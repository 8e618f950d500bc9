"""Queues between the reader, the decoders and the collector."""

from typing import Final

from gaussdecode.metrics.metric import Metric, gauge

QUEUES: Final[tuple[Metric, ...]] = (
    gauge(
        "read_change_queue_length",
        "entries",
        "Length of the queue of batches that wait to be decoded, per decoder; "
        "parallel-queue-size when it is full by batches or by bytes",
        "Near 0 with lag: the server or the network is the limit. Near parallel-queue-size: the "
        "limit is the decoders or a later stage; see decode_change_queue_length.",
        labels=("decoder",),
    ),
    gauge(
        "decode_change_queue_length",
        "entries",
        "Length of the queue of decoded batches that wait for the collector, per decoder; "
        "parallel-queue-size when it is full",
        "Near 0 with a full read queue: decoding is the limit, or a decoder is stopped; the status "
        "page says which. High: landing is the limit. "
        "See land_encoded_seconds_total; raise landing.writer-lanes or use a faster disk.",
        labels=("decoder",),
    ),
    gauge(
        "read_change_queue_entries",
        "entries",
        "Batches that wait to be decoded",
        labels=("decoder",),
    ),
    gauge(
        "read_change_queue_bytes",
        "bytes",
        "Room that they take",
        "Near ring.raw-ring-bytes with few entries: the byte limit applies; larger rings only "
        "help with short peaks.",
        labels=("decoder",),
    ),
    gauge(
        "decode_change_queue_entries",
        "entries",
        "Decoded batches that wait for the collector",
        labels=("decoder",),
    ),
    gauge(
        "decode_change_queue_bytes",
        "bytes",
        "Room that they take",
        "Near ring.decoded-ring-bytes with few entries: the byte limit applies.",
        labels=("decoder",),
    ),
)
