"""A real Prometheus that scrapes daemons of a test, and is asked over its own API."""

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from gaussdecode.demo.ports import free_port
from kit.daemon import wait_until
from kit.install import find_tool

Json = dict[str, Any]  # Any: JSON


class Prometheus:
    """Scrapes every second if not told otherwise, until the end of a ``with`` block.

    Args:
        directory: gets its configuration, data and log.
        targets: ports of daemons on this machine.
        rules: content of a rule file, or None.
        interval: between two scrapes, and between two evaluations of the rules.
    """

    def __init__(
        self,
        directory: Path,
        targets: Sequence[int],
        rules: Mapping[str, Any] | None = None,
        interval: str = "1s",
    ) -> None:
        self._directory = directory
        self._port = free_port()
        config: Json = {
            "global": {
                "scrape_interval": interval,
                "scrape_timeout": interval,
                "evaluation_interval": interval,
            },
            "scrape_configs": [
                {
                    "job_name": "gaussdecode",
                    "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in targets]}],
                }
            ],
        }
        if rules is not None:
            config["rule_files"] = ["rules.yml"]
            (directory / "rules.yml").write_text(yaml.safe_dump(rules))
        (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start it and wait until it is ready."""
        log = (self._directory / "prometheus.log").open("wb")
        self._process = subprocess.Popen(
            [
                find_tool("prometheus"),
                f"--config.file={self._directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={self._directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{self._port}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        log.close()
        wait_until(self._is_ready, "Prometheus is ready")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        if error is not None:
            print((self._directory / "prometheus.log").read_text()[-4000:])

    def _is_ready(self) -> bool:
        try:
            self._get("/-/ready")
        except OSError:
            return False
        return True

    def _get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=10) as answer:
            body: bytes = answer.read()
            return body

    def query(self, expression: str) -> list[Json]:
        """Evaluate an expression now.

        Returns:
            One ``{"metric": labels, "value": [time, text]}`` per series.

        Raises:
            urllib.error.HTTPError: Prometheus does not understand it.
        """
        answer = json.loads(
            self._get(f"/api/v1/query?{urllib.parse.urlencode({'query': expression})}")
        )
        assert answer["status"] == "success", answer
        found: list[Json] = answer["data"]["result"]
        return found

    def query_range(self, expression: str, start: float, end: float, step: float) -> list[Json]:
        """Evaluate an expression over time.

        Args:
            expression: as for `query`.
            start: seconds since 1970.
            end: likewise.
            step: seconds between two values.

        Returns:
            One ``{"metric": labels, "values": [[time, text], ...]}`` per series.
        """
        fields = {"query": expression, "start": start, "end": end, "step": step}
        answer = json.loads(self._get(f"/api/v1/query_range?{urllib.parse.urlencode(fields)}"))
        assert answer["status"] == "success", answer
        found: list[Json] = answer["data"]["result"]
        return found

    def firing(self) -> set[str]:
        """Names of the alerts that fire now."""
        alerts = json.loads(self._get("/api/v1/alerts"))["data"]["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}
