"""The decoders."""

from typing import Final

from gaussdecode.metrics.metric import Metric, counter, gauge

DECODE: Final[tuple[Metric, ...]] = (
    gauge(
        "decode_decoders",
        "decoders",
        "Decoders of the running session; 1 decodes in the reader's process",
        "With parallel-decode-num auto: the number that was measured to be fastest.",
    ),
    counter(
        "decode_decoder_changes",
        "changes",
        "Sessions that ended to change the number of decoders, with parallel-decode-num auto",
        "More than a few per hour: the load varies; set a fixed number.",
    ),
    counter("decode_batches", "batches", "Batches decoded", labels=("decoder",)),
    counter("decode_wire_bytes", "bytes", "Bytes decoded", labels=("decoder",)),
    counter("decode_rows", "rows", "Rows decoded", labels=("decoder",)),
    counter("decode_busy_seconds", "seconds", "Time that a decoder worked", labels=("decoder",)),
    counter(
        "decode_waited_input_seconds",
        "seconds",
        "Time that a decoder waited for input",
        "A rate near 1 on all decoders: fewer are enough.",
        labels=("decoder",),
    ),
    counter(
        "decode_waited_output_seconds",
        "seconds",
        "Time that a decoder waited for space in its decode change queue",
        "A rate near 1: landing is the limit.",
        labels=("decoder",),
    ),
    counter(
        "decode_misfit_values",
        "values",
        "Values that did not fit their column and were kept as text in gd_raw",
        "Any growth: see gd_raw of the newest files. Often Infinity, dates BC, or a type that "
        "was altered.",
        labels=("decoder",),
    ),
)
