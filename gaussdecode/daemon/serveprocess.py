"""Run the server of `gaussdecode serve` and its port for Prometheus: for the command, or as a child of the daemon.

A child tells its parent when its port is open, and every second that it makes progress. It ends when the parent
closes its end of a pipe.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from gaussdecode import limits, logs
from gaussdecode.daemon.serving import Task
from gaussdecode.daemon.status.http import MonitoringServer
from gaussdecode.daemon.status.tls import PortTls
from gaussdecode.errors import ConfigError
from gaussdecode.host.certificates import CertificateEnd
from gaussdecode.host.lean_imports import forgo_pandas
from gaussdecode.ipc.process import Reports, enter_child
from gaussdecode.metrics.exposition import Exposition, Snapshot
from gaussdecode.serve.errors import ServeError
from gaussdecode.serve.server import Server
from gaussdecode.settings.sections import MonitoringConfig, serve_port_files
from gaussdecode.settings.types import Address

_ALIVE_SECONDS: Final = 30.0  # arbitrary: the event loop has a turn in every second
_BEAT_SECONDS: Final = 1.0
_FILES: Final = 512  # arbitrary: of the landing, and of the process itself
_log = logs.get_logger("serve")


async def serve(task: Task, started: Callable[[int], None], stop: asyncio.Event) -> None:
    """Serve until told to stop.

    Args:
        task: what to serve.
        started: is told the port, once it is open.
        stop: ends everything.

    Raises:
        ConfigError: it cannot be served with these settings.
        ServeError: likewise.
        GaussDecodeError: the landing cannot be read.
    """
    from gaussdecode.serve.outputs.registry import PLUGINS

    settings = task.settings
    limits.allow_descriptors(2 * settings.connections + _FILES)  # a stream has two of its socket
    files = serve_port_files(settings)
    tls = None if files is None else PortTls(files).context
    server = Server(task.root, settings, PLUGINS, tls, task.keep, task.slots_root)
    port = None
    if settings.monitoring_listen is not None:
        port = monitor(server, settings.monitoring_listen, task.monitoring, task.slot)
    try:
        await server.run(started, stop)
    finally:
        if port is not None:
            port.close()


def monitor(
    server: Server, listen: Address, monitoring: MonitoringConfig, slot: str
) -> MonitoringServer:
    """Show a server to Prometheus and to people.

    Args:
        server: the server; its event loop runs, or will.
        listen: address.
        monitoring: TLS of the port.
        slot: value of the label that every series has.

    Raises:
        ConfigError: the address cannot be had, or a file of TLS cannot be used.
    """
    path = server.settings.tls_certificate_file
    end = None if path is None else CertificateEnd(path)

    def metrics() -> Snapshot:
        values = server.counts.metrics()
        if end is not None:
            values["gaussdecode_daemon_certificate_end_time_seconds"] = {
                ("serve.tls-certificate-file",): end.seconds()
            }
        return values

    def is_alive() -> bool:
        return time.monotonic() - server.beat < _ALIVE_SECONDS

    files = monitoring.tls_files
    port = MonitoringServer(
        listen,
        render_metrics=Exposition(slot, metrics).render,
        take_status=lambda: {"slot_name": slot, **server.counts.status()},
        is_alive=is_alive,
        readiness=lambda: (True, "ready") if is_alive() else (False, "no progress"),
        tls=None if files is None else PortTls(files).context,
        name="serve.monitoring-listen",
    )
    port.start()
    _log.info(logs.Event.HTTP_STARTED, address=str(port.address), is_tls=files is not None)
    return port


# ---- as a child ----------------------------------------------------------------------------


async def _serve_for_parent(task: Task, reports: Reports, stop_fd: int) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def end() -> None:
        loop.remove_reader(stop_fd)
        stop.set()

    loop.add_reader(stop_fd, end)
    beat = loop.create_task(_beat(reports))
    try:
        await serve(task, lambda port: reports.write("serving", port=port), stop)
    finally:
        beat.cancel()


async def _beat(reports: Reports) -> None:
    while True:
        reports.write("alive")
        await asyncio.sleep(_BEAT_SECONDS)


def main() -> None:
    """Live and die as a child of the daemon."""
    forgo_pandas()
    settings, reports = enter_child()
    task = Task.unpacked(settings["task"])
    logs.configure(task.monitoring.log_level, slot=task.slot)
    try:
        asyncio.run(_serve_for_parent(task, reports, settings["stop_fd"]))
    except ServeError as error:
        reports.fail(ConfigError(error.message))
    except Exception as error:  # noqa: BLE001 - whatever it was, the daemon is to know
        reports.fail(error)
    _log.info(logs.Event.SERVE_STOPPED)


if __name__ == "__main__":
    main()
