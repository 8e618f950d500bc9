"""The image's recipe, the Kubernetes manifests and the Compose file fit the program and each other."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from kit.postgres import make_certificates

import gaussdecode
from gaussdecode.daemon.status.http import MonitoringServer
from gaussdecode.daemon.status.tls import server_context
from gaussdecode.settings.dsn import CREDENTIAL
from gaussdecode.settings.load import load
from gaussdecode.settings.sections import Config, PortFiles
from gaussdecode.settings.types import Address

Json = dict[str, Any]  # Any: YAML
ROOT: Final = Path(__file__).parents[1]
RECIPE: Final = (ROOT / "release/image/Containerfile").read_text()
COMPOSE: Final = yaml.safe_load((ROOT / "config/compose/compose.yaml").read_text())
UNIT: Final = (ROOT / "systemd/gaussdecode@.service").read_text()
LABELS: Final = {"app.kubernetes.io/name": "gaussdecode", "app.kubernetes.io/instance": "orders"}


def said(pattern: str, text: str = RECIPE) -> str:
    """The one thing that a text says of something."""
    (found,) = re.findall(pattern, text, re.MULTILINE)
    return str(found)


PORT: Final = int(said(r"^EXPOSE (\d+)$"))
USER: Final = int(said(r"^USER (\d+):\d+$"))
LIB: Final = said(r"^VOLUME (\S+)$")
COMMAND: Final = json.loads(said(r"^CMD (\[.*\])$"))
GRACE: Final = int(said(r"^TimeoutStopSec=(\d+)s$", UNIT))
IMAGE: Final = f"gaussdecode:{gaussdecode.__version__}"


@pytest.fixture(scope="module")
def manifests() -> dict[str, Json]:
    """All objects, by kind; there is one of each."""
    found = [
        each
        for path in (ROOT / "config/kubernetes").glob("*.yaml")
        for each in yaml.safe_load_all(path.read_text())
    ]
    kinds = {each["kind"]: each for each in found}
    assert len(kinds) == len(found)
    return kinds


def config_of(text: str, tmp_path: Path) -> Config:
    """Load a configuration as the daemon does, which refuses unknown keys and values."""
    path = tmp_path / "slot.yaml"
    path.write_text(text)
    return load(path)


def check_config(config: Config) -> None:
    """It fits the image: the port that is asked for health, the volume, others may ask."""
    listen = config.monitoring.listen
    assert (listen.host, listen.port) == ("0.0.0.0", PORT)
    assert config.landing.root.parent == Path(LIB)


def test_the_manifests_configure_a_daemon(manifests: dict[str, Json], tmp_path: Path) -> None:
    """Every option exists; the files it names are mounted, where the image looks for its configuration."""
    data = manifests["ConfigMap"]["data"]
    config = config_of(data["slot.yaml"], tmp_path)
    check_config(config)
    pod = manifests["StatefulSet"]["spec"]["template"]["spec"]
    volumes = {each["name"]: each for each in pod["volumes"]}
    for container in (*pod["initContainers"], *pod["containers"]):
        mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
        assert [f"{mounts['config']}/{name}" for name in data] == [COMMAND[1]]
        assert mounts["landing"] == LIB
        assert mounts["tmp"] == "/tmp"
        secret = {f"{mounts['secret']}/{name}" for name in manifests["Secret"]["stringData"]}
        named = set(re.findall(rf"{mounts['secret']}/[\w.]+", data["slot.yaml"]))
        assert str(config.source.password_file) in named
        assert named == secret
    assert volumes["config"]["configMap"]["name"] == manifests["ConfigMap"]["metadata"]["name"]
    assert volumes["secret"]["secret"]["secretName"] == manifests["Secret"]["metadata"]["name"]
    (claim,) = manifests["StatefulSet"]["spec"]["volumeClaimTemplates"]
    assert claim["metadata"]["name"] == "landing"


def test_the_pod_is_the_image(manifests: dict[str, Json]) -> None:
    """Its version, account and command; a root that is read only; time to land what was received."""
    spec = manifests["StatefulSet"]["spec"]
    pod = spec["template"]["spec"]
    assert spec["replicas"] == 1
    assert pod["terminationGracePeriodSeconds"] == GRACE
    of_pod = pod["securityContext"]
    assert {of_pod[key] for key in ("runAsUser", "runAsGroup", "fsGroup")} == {USER}
    for container in (*pod["initContainers"], *pod["containers"]):
        assert container["image"] == IMAGE
        assert container["securityContext"]["readOnlyRootFilesystem"]
    (container,) = pod["containers"]
    assert container["args"] == COMMAND
    (begin,) = pod["initContainers"]
    assert COMMAND[1] in begin["args"][0]


def test_what_is_asked_is_answered(manifests: dict[str, Json]) -> None:
    """Probes, scrapes and the health check name paths of the daemon, and its port."""
    server = MonitoringServer(
        Address("127.0.0.1", 0), render_metrics=bytes, take_status=dict, is_alive=bool,
        readiness=lambda: (True, ""),
    )  # fmt: skip
    find = server._server.find
    server.close()
    pod = manifests["StatefulSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (port,) = container["ports"]
    assert port["containerPort"] == PORT
    probes = {name: container[name]["httpGet"] for name in ("livenessProbe", "readinessProbe")}
    assert {name: probe["path"] for name, probe in probes.items()} == {
        "livenessProbe": "/livez",
        "readinessProbe": "/readyz",
    }
    (scraped,) = manifests["PodMonitor"]["spec"]["podMetricsEndpoints"]
    for path in (*(probe["path"] for probe in probes.values()), scraped["path"]):
        assert find(path, None) is not None, path
    (of_service,) = manifests["Service"]["spec"]["ports"]
    assert of_service["port"] == PORT
    names = {scraped["port"], of_service["targetPort"], *(p["port"] for p in probes.values())}
    assert names == {port["name"]}
    (rule,) = manifests["NetworkPolicy"]["spec"]["ingress"]
    assert [each["port"] for each in rule["ports"]] == [PORT]


@pytest.mark.parametrize("is_tls", [False, True])
def test_the_health_check_asks_with_and_without_tls(tmp_path: Path, is_tls: bool) -> None:
    """It ends with 0 where the daemon is alive, else not; also where nobody answers."""
    answers = [True, False]
    make_certificates(tmp_path)
    context = server_context(PortFiles(tmp_path / "server.pem", tmp_path / "server.key"))
    server = MonitoringServer(
        Address("127.0.0.1", 0), render_metrics=bytes, take_status=dict,
        is_alive=lambda: answers.pop(0), readiness=lambda: (True, ""),
        tls=(lambda: context) if is_tls else None,
    )  # fmt: skip
    server.start()
    text = said(r"^HEALTHCHECK (?:[^\[]|\n)*CMD (\[(?:.*\\\n)*.*\])$").replace("\\\n", "")
    _, *arguments = json.loads(text)
    assert str(PORT) in arguments[1]
    command = [sys.executable, *arguments]
    command[-1] = command[-1].replace(str(PORT), str(server.address.port))
    try:
        found = [subprocess.run(command, check=False).returncode for _ in range(2)]
    finally:
        server.close()
    assert (found, answers) == ([0, 1], [])
    assert subprocess.run(command, check=False, capture_output=True).returncode == 1


def test_everything_of_a_slot_has_its_labels(manifests: dict[str, Json]) -> None:
    """Selectors find the pod, and one slot's pod only."""
    pod = manifests["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    assert pod == LABELS
    assert manifests["StatefulSet"]["spec"]["selector"]["matchLabels"] == LABELS
    assert manifests["Service"]["spec"]["selector"] == LABELS
    assert manifests["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == LABELS
    assert manifests["PodMonitor"]["spec"]["selector"]["matchLabels"].items() <= LABELS.items()
    assert (
        manifests["StatefulSet"]["spec"]["serviceName"] == manifests["Service"]["metadata"]["name"]
    )


def test_the_compose_file_fits(tmp_path: Path) -> None:
    """Its configuration loads; mounts, secret, port and Prometheus' target agree with it."""
    config = config_of((ROOT / "config/compose/slot.yaml").read_text(), tmp_path)
    check_config(config)
    services = COMPOSE["services"]
    daemon = services["gaussdecode"]
    assert daemon["command"] == COMMAND
    assert daemon["image"] == f"${{GAUSSDECODE_IMAGE:-localhost/{IMAGE}}}"
    assert daemon["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]
    assert daemon["stop_grace_period"] == f"{GRACE}s"
    assert daemon["volumes"] == [f"./slot.yaml:{COMMAND[1]}:ro", f"landing:{LIB}"]
    assert daemon["secrets"] == [CREDENTIAL]
    assert daemon["environment"] == {"CREDENTIALS_DIRECTORY": "/run/secrets"}
    assert "host=postgres " in str(config.source.dsn)
    scrape = yaml.safe_load((ROOT / "config/compose/prometheus.yml").read_text())
    ((job,),) = [each["static_configs"] for each in scrape["scrape_configs"]]
    assert job["targets"] == [f"gaussdecode:{PORT}"]
    for service in services.values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (ROOT / "config/compose" / source).is_file(), source
            else:
                assert source in COMPOSE["volumes"]
    script = (ROOT / "config/compose/begin.sh").read_text()
    for publication in config.source.publication:
        assert f"CREATE PUBLICATION {publication} " in script
