"""Open the monitoring port with one configuration after the other."""

from collections.abc import Callable
from typing import Final

from gaussdecode.daemon.acts import Acts
from gaussdecode.daemon.control import ActQueue
from gaussdecode.daemon.httpacts import HttpActs
from gaussdecode.daemon.status.facts import Running
from gaussdecode.daemon.status.http import MonitoringServer
from gaussdecode.daemon.status.page import render_page
from gaussdecode.daemon.status.reading import Readings
from gaussdecode.daemon.status.tls import PortTls
from gaussdecode.logs import Event, get_logger
from gaussdecode.metrics.exposition import Exposition
from gaussdecode.settings.sections import Config, PortFiles

_READ_ON_THE_WAY: Final = (
    "monitoring.control-token-file with monitoring.allow-remote: there is no TLS, and the token can be "
    "read on the way; set monitoring.tls-certificate-file and tls-key-file, or listen on the loopback interface"
)
_log = get_logger("daemon")


class Monitoring:
    """Opens the port.

    Args:
        running: current state; gets the end of the port's certificate.
        acts: gets what reads that certificate again.
        queue: takes acts over HTTP.
    """

    def __init__(self, running: Running, acts: Acts, queue: ActQueue) -> None:
        self._running = running
        self._acts = acts
        self._queue = queue
        self._tls: dict[PortFiles, PortTls] = {}

    def open(
        self, config: Config, readings: Readings, is_alive: Callable[[], bool]
    ) -> MonitoringServer:
        """Begin to answer.

        Args:
            config: checked.
            readings: what is shown.
            is_alive: the answer of ``/livez``.

        Raises:
            ConfigError: the address or a file of the certificate cannot be used.
        """
        tls = self._port_tls(config.monitoring.tls_files)
        self._acts.reread_certificate = None if tls is None else tls.reread
        self._running.port_end = None if tls is None else lambda: tls.end
        token_file = config.monitoring.control_token_file
        if token_file is not None and config.monitoring.allow_remote and tls is None:
            _log.warning(Event.CONFIG_WARNING, text=_READ_ON_THE_WAY)
        server = MonitoringServer(
            config.monitoring.listen,
            render_metrics=Exposition(config.slot, readings.metrics).render,
            take_status=readings.status,
            is_alive=is_alive,
            readiness=readings.readiness,
            render_page=lambda certified: render_page(readings.picture(), certified),
            act=HttpActs(self._queue.ask, token_file),
            tls=None if tls is None else tls.context,
        )
        server.start()
        _log.info(Event.HTTP_STARTED, address=str(server.address), is_tls=tls is not None)
        return server

    def _port_tls(self, files: PortFiles | None) -> PortTls | None:
        """TLS of the port; after a reload that of before, which goes on where its files are bad by now."""
        if files is not None and files not in self._tls:
            self._tls[files] = PortTls(files)
        return None if files is None else self._tls[files]
