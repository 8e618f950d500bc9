"""The container image: what is in it, and a daemon in it over kills, an upgrade and a server that is away.

It builds the image first, and needs podman and runc: `make test-image` runs it, continuous integration does not.
"""

import gzip
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

import pytest
from kit import oracle
from kit.daemon import Daemon, wait_until
from kit.postgres import Database, Postgres
from kit.workload import Workload

import gaussdecode

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]
ROOT: Final = Path(__file__).parents[2]
ROLE, PASSWORD = "contained", "kept in a secret"
USER: Final = 10001
NEXT: Final = "9.9.9"
# The limits that podman would set are above what some hosts allow.
RUN: Final = (
    "--network=host", "--read-only", "--tmpfs=/tmp", "--cap-drop=all",
    "--security-opt=no-new-privileges", "--ulimit=nofile=4096:4096", "--ulimit=nproc=4096:4096",
)  # fmt: skip


def podman(*words: str, status: int = 0) -> str:
    """Run podman, and give what it printed."""
    done = subprocess.run(
        ["podman", "--runtime=runc", *words], check=False, capture_output=True, text=True
    )
    assert done.returncode == status, f"{words}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout.strip()


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The image, loaded from its archive as a user does."""
    (archive,) = (ROOT / "dist").glob(f"gaussdecode-{gaussdecode.__version__}-image-*.tar.gz")
    with gzip.open(archive) as packed, (tmp_path_factory.mktemp("image") / "tar").open("wb") as tar:
        shutil.copyfileobj(packed, tar)
    return podman("load", "--quiet", "--input", tar.name).split()[-1]


@pytest.fixture(scope="module")
def next_image(image: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image of a later version."""
    recipe = tmp_path_factory.mktemp("next") / "Containerfile"
    change = f"cd /opt/gaussdecode/lib/python3*/site-packages/gaussdecode; sed -i 's/^__version__.*/__version__ = \"{NEXT}\"/' __init__.py; rm __pycache__/__init__.*"
    recipe.write_text(f"FROM {image}\nUSER 0\nRUN {change}\nUSER {USER}\n")
    tag = f"localhost/gaussdecode:{NEXT}"
    podman(
        "build", "--quiet", "--format=docker", "--network=host", *RUN[-2:], f"--tag={tag}",
        f"--file={recipe}", str(recipe.parent),
    )  # fmt: skip
    return tag


class Contained(Daemon):
    """A daemon in a container: read-only root, configuration and landing as volumes.

    Attributes:
        image: that its next start takes.
    """

    def __init__(self, database: Database, directory: Path, image: str) -> None:
        self.image, self.etc, self.lib = image, directory / "etc", directory / "lib"
        for place in (self.etc, self.lib):
            place.mkdir()
        dsn = database.dsn.replace("user=postgres", f"user={ROLE}")
        super().__init__(database, self.etc, dsn=dsn)
        self.container = f"gaussdecode-{database.name}-{self.port}"
        self.root = self.lib / "orders"
        self.config_path = self.etc / "slot.yaml"
        self._config["source"]["password-file"] = "/etc/gaussdecode/password"
        self.write_config(landing={"root": "/var/lib/gaussdecode/orders"})
        (self.etc / "password").write_text(f"{PASSWORD}\n")
        for path in (self.lib, self.etc / "password", self.config_path):
            subprocess.run(["chown", f"{USER}:{USER}", path], check=True)
        self.config_path.chmod(0o640)
        (self.etc / "password").chmod(0o400)

    @property
    def volumes(self) -> tuple[str, ...]:
        """As options."""
        return (
            f"--volume={self.etc}:/etc/gaussdecode:ro",
            f"--volume={self.lib}:/var/lib/gaussdecode",
        )

    def command(self, *words: str, status: int = 0) -> str:
        """Run a command in a container of its own."""
        return podman("run", "--rm", *RUN, *self.volumes, self.image, *words, status=status)

    def start(self) -> Self:
        """``podman run``; the landing begins before the first one."""
        if not (self.root / "layout.json").exists():
            self.command("slot", "create", "/etc/gaussdecode/slot.yaml")
        subprocess.run(["podman", "rm", "--force", self.container], check=True, capture_output=True)
        podman("run", "--detach", f"--name={self.container}", *RUN, *self.volumes, self.image)
        return self

    def inspect(self, what: str) -> str:
        """A field of the state of the container."""
        return podman("inspect", "--format", f"{{{{.State.{what}}}}}", self.container)

    @property
    def is_running(self) -> bool:
        """Whether the container runs."""
        return self.inspect("Running") == "true"

    def stop(self) -> int:
        """SIGTERM to its first process; gives the exit status."""
        podman("stop", "--time=180", self.container)
        return int(self.inspect("ExitCode"))

    def kill9(self) -> None:
        """Kill the first process, and so all."""
        podman("kill", "--signal=KILL", self.container)
        wait_until(lambda: not self.is_running, "it is gone")

    def log_tail(self, lines: int = 20) -> str:
        """The end of what it said."""
        done = subprocess.run(
            ["podman", "logs", f"--tail={lines}", self.container],
            check=False,
            capture_output=True,
            text=True,
        )
        return done.stdout + done.stderr

    def __exit__(self, *of_error: object) -> None:
        """Remove the container."""
        if of_error[1] is not None:
            print(self.log_tail(60))
        podman("rm", "--force", self.container)


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    """A server with the role of the daemon."""
    with Postgres(15, {"wal_sender_timeout": "10s"}) as running:
        running.use_password(ROLE, PASSWORD)
        yield running


def test_what_is_in_it(image: str) -> None:
    """An account that is not root, no compiler, no tests; labels of the version."""
    (found,) = json.loads(podman("image", "inspect", image))
    version = podman("run", "--rm", *RUN, image, "--version").split()[-1]
    labels = found["Labels"]
    assert labels["org.opencontainers.image.version"] == version
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert found["User"] == f"{USER}:{USER}"
    script = (
        "for it in gcc cc make pip; do if command -v $it; then exit 1; fi; done; "
        "find /opt/gaussdecode '(' -name tests -o -path '*/site-packages/gaussdecode/*.pyx' ')' | grep . && exit 1; "
        "touch /opt/gaussdecode/x 2>/dev/null && exit 1; id -u"
    )
    assert podman("run", "--rm", *RUN, "--entrypoint=sh", image, "-c", script) == str(USER)


def test_kills_and_an_upgrade_under_load(
    image: str, next_image: str, server: Postgres, tmp_path: Path
) -> None:
    """Every row lands once, over a kill, an end in order and a later image; then tables are made."""
    database = Database(server, "boxed")
    workload = Workload(database, 61, hidden_ddl=False)
    workload.create()
    with Contained(database, tmp_path, image) as daemon:
        workload.start(pause=0.01)
        daemon.wait_for_state("streaming")
        reached = daemon.durable_lsn()
        daemon.wait_while_running(lambda: daemon.durable_lsn() > reached, "it lands")
        daemon.kill9()
        daemon.start()
        daemon.wait_for_state("streaming")
        assert daemon.stop() == 0
        daemon.image = next_image
        daemon.start()
        daemon.wait_for_state("streaming")
        assert daemon.record()["version"] == NEXT
        workload.finish()
        daemon.catch_up()
        oracle.check(daemon.root, database)
        daemon.command("verify", "/var/lib/gaussdecode/orders")
        assert daemon.stop() == 0
        daemon.command(
            "spark",
            "apply",
            "--local",
            "--tables",
            "kit.toast,kit.pair_key",
            "/var/lib/gaussdecode/orders",
            "/var/lib/gaussdecode/tables",
        )


def test_a_server_that_is_away(image: str, server: Postgres, tmp_path: Path) -> None:
    """The health check does not have the daemon killed; `status` tells."""
    database = Database(server, "away")
    with Contained(database, tmp_path, image) as daemon:
        # As the health check asks, for the port of the test.
        (found,) = json.loads(podman("image", "inspect", image))
        check = [
            word.replace("19187", str(daemon.port)) for word in found["Healthcheck"]["Test"][1:]
        ]
        daemon.wait_for_state("streaming")
        podman("exec", daemon.container, *check)
        podman("exec", daemon.container, "gaussdecode", "status", "/etc/gaussdecode/slot.yaml")
        server.stop()
        wait_until(lambda: daemon.record()["state"] != "streaming", "it notices")
        podman("exec", daemon.container, *check)
        podman(
            "exec",
            daemon.container,
            "gaussdecode",
            "status",
            "/etc/gaussdecode/slot.yaml",
            status=69,
        )
        assert daemon.stop() == 0
        server.start()
