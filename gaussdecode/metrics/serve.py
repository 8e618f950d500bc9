"""The server for clients of the landing, `gaussdecode serve`; at its own port."""

from typing import Final

from gaussdecode.metrics.metric import Metric, counter, gauge

REFUSALS: Final = ("address", "connections", "login")
"""Values of the label ``reason``."""
_SLOT: Final = ("virtual_slot",)

SERVE: Final[tuple[Metric, ...]] = (
    gauge(
        "serve_confirmed_lsn",
        "lsn",
        "LSN that the client of a virtual slot has confirmed",
        "Not rising while land_durable_lsn does: see serve_connected and serve_waited_seconds_total.",
        labels=_SLOT,
    ),
    gauge(
        "serve_behind_bytes",
        "bytes",
        "WAL between that and the end of the landing; NaN where it is not known",
        "Growing: see serve_connected. If connected: the client, or the way to it, is slow.",
        labels=_SLOT,
    ),
    gauge(
        "serve_behind_seconds",
        "seconds",
        "Age of the oldest transaction that has landed and is not confirmed, as of the newest of its entry; 0 "
        "without one, NaN where it is not known",
        "As serve_behind_bytes.",
        labels=_SLOT,
    ),
    gauge(
        "serve_slot_lost",
        "bool",
        "1 for a virtual slot that needs entries which retention has removed",
        "1: drop the slot; its client has to begin anew.",
        labels=_SLOT,
    ),
    gauge(
        "serve_connected",
        "bool",
        "1 while a client streams from a virtual slot",
        "0: start the client, or drop the slot: it holds files back.",
        labels=_SLOT,
    ),
    counter(
        "serve_rows",
        "rows",
        "Changes and messages sent to the clients of a virtual slot, by streams and as rows of SQL, those that were "
        "sent again included; temporary slots have the label (temporary) together",
        labels=_SLOT,
    ),
    counter("serve_sent_bytes", "bytes", "Bytes of them", labels=_SLOT),
    counter(
        "serve_waited_seconds",
        "seconds",
        "Time in which streams waited for their clients to read; of several that wait at once the sum",
        "A rate near 1: the client, or the way to it, is the limit.",
        labels=_SLOT,
    ),
    gauge("serve_clients", "clients", "Connections, those that log in included"),
    gauge("serve_clients_limit", "clients", "serve.connections"),
    counter(
        "serve_refused",
        "connections",
        "Connections that were refused: by serve.allow (address), by serve.connections (connections), or because "
        "the log-in failed or took too long (login)",
        "Growing: see client_refused in the log, which names addresses and users.",
        labels=("reason",),
    ),
    gauge(
        "serve_start_time_seconds",
        "seconds",
        "Start time of the server, in seconds since 1970",
        "Recent again and again: systemd restarts it; see the log.",
    ),
)
