"""Tests for `gaussdecode.commands.status`."""

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.certificates import sign
from kit.postgres import make_certificates

from gaussdecode.cli import main
from gaussdecode.commands.run import _second_run
from gaussdecode.daemon.status.http import MonitoringServer
from gaussdecode.daemon.status.tls import server_context
from gaussdecode.errors import EX_CONFIG, EX_OK, EX_UNAVAILABLE, ConfigError
from gaussdecode.operations.check.port import examine_port
from gaussdecode.settings.load import load
from gaussdecode.settings.sections import PortFiles
from gaussdecode.settings.types import Address

RECORD: dict[str, object] = {
    "slot_name": "orders",
    "parallel_decode_num": 2,
    "read_change_queue_length": "queue0: 3, queue1: 0",
    "decode_change_queue_length": "queue0: 0, queue1: 1",
    "reader_lsn": "16/B374D848",
    "durable_lsn": "16/B374D800",
    "lag_bytes": 72,
    "lag_seconds": 0.25,
    "state": "streaming",
    "detail": None,
    "limit": {
        "stage": "decode",
        "sentence": "The decoders work 97% of the time.",
        "setting": "decoding.parallel-decode-num",
    },
    "is_well": True,
    "troubles": [{"what": "The landing is behind.", "action": "Do something."}],
}


@pytest.fixture
def changes() -> dict[str, object]:
    """What the daemon says differently from `RECORD`."""
    return {}


@pytest.fixture
def port(changes: dict[str, object]) -> Iterator[int]:
    """Port of a daemon that says `RECORD`."""
    server = MonitoringServer(
        Address("127.0.0.1", 0),
        render_metrics=lambda: b"",
        take_status=lambda: {**RECORD, **changes},
        is_alive=lambda: True,
        readiness=lambda: (True, "ready"),
    )
    server.start()
    yield server.address.port
    server.close()


def config(directory: Path, port: int, slot: str = "orders") -> str:
    """Write a configuration that listens on a port."""
    path = directory / f"{slot}.yaml"
    path.write_text(
        f"slot: {slot}\nsource: {{kind: capture, file: /c}}\nlanding: {{root: /l}}\n"
        f"monitoring: {{listen: '127.0.0.1:{port}'}}\n"
    )
    return str(path)


@pytest.mark.parametrize(
    ("server", "told"),
    [
        (None, ""),
        ({"held_by": "landing", "slot": {"retained_bytes": 9e9}}, ""),
        ({"held_by": "transaction", "slot": {"retained_bytes": 9e8}}, ""),
        ({"held_by": "checkpoint", "slot": {"retained_bytes": 9e9}}, ""),
        (
            {
                "held_by": "transaction",
                "slot": {"retained_bytes": 9e9, "transaction_seconds": 7800.0},
            },
            "keeps 9.0 GB of WAL for a transaction that has been open for 2 h 10 min: SELECT pid,",
        ),
        (
            {"held_by": "prepared", "slot": {"retained_bytes": 9e9, "prepared_seconds": 90.0}},
            "keeps 9.0 GB of WAL for a prepared transaction that has been open for 90 s: SELECT gid,",
        ),
    ],
)
def test_says_who_holds_the_wal(
    tmp_path: Path,
    port: int,
    changes: dict[str, object],
    capsys: pytest.CaptureFixture[str],
    server: object,
    told: str,
) -> None:
    """What somebody on the server left open is named, with the query that finds it."""
    changes["server"] = server
    assert main(["status", config(tmp_path, port)]) == EX_OK
    out = capsys.readouterr().out
    assert told in out
    assert ("of WAL" in out) is bool(told)


def test_prints_the_servers_columns(
    tmp_path: Path, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """A header and a row, aligned; what is wrong goes to standard error."""
    assert main(["status", config(tmp_path, port)]) == EX_OK
    out, err = capsys.readouterr()
    header, rule, row, limit = out.splitlines()
    assert header.split(" | ")[0].strip() == "slot_name"
    assert set(rule) == {" ", "-", "+"}
    cells = [cell.strip() for cell in row.split(" | ")]
    assert cells == ["orders", "2", "queue0: 3, queue1: 0", "queue0: 0, queue1: 1", "16/B374D848",
                     "16/B374D800", "72", "0.2", "streaming", "decode"]  # fmt: skip
    assert limit == (
        " orders: The decoders work 97% of the time. Remedy: decoding.parallel-decode-num"
    )
    assert err == "orders: The landing is behind. Do something.\n"


def test_says_which_source_is_waited_for(
    tmp_path: Path, port: int, changes: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    """A line for each source, where there are several."""
    source = {
        "slot": "s", "host": "h:1", "lag_bytes": 0, "lag_seconds": 0.0, "durable_lsn": "0/1",
        "watermark_csn": 7, "waiting_transactions": 0,
    }  # fmt: skip
    held = {"is_late": True, "held_seconds": 9.0, "held_by": [{"xid": 5, "pid": 6}]}
    changes["sources"] = [
        {**source, "name": "dn1", "is_late": False},
        {**source, "name": "dn2", **held},
    ]
    assert main(["status", config(tmp_path, port)]) == EX_OK
    first, second = capsys.readouterr().out.splitlines()[-2:]
    assert first == " orders: source dn1 (s at h:1): 0 B, 0 s behind; durable 0/1, CSN 7"
    assert second.endswith("; the mark has waited 9 s for transaction 5 of thread 6")


@pytest.mark.parametrize(
    ("count", "told"),
    [(0, None), (1, "1 prepared transaction waits for"), (12, "12 prepared transactions wait for")],
)
def test_says_how_many_are_prepared(
    tmp_path: Path,
    port: int,
    changes: dict[str, object],
    capsys: pytest.CaptureFixture[str],
    count: int,
    told: str | None,
) -> None:
    """Where there are some."""
    changes["prepared_txn_cnt"] = count
    assert main(["status", config(tmp_path, port)]) == EX_OK
    out = capsys.readouterr().out
    end = " COMMIT PREPARED or ROLLBACK PREPARED"
    assert (f" orders: {told}{end}" in out.splitlines()) if told else ("PREPARED" not in out)


def test_says_how_far_clients_are(
    tmp_path: Path, port: int, changes: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    """The one that is furthest behind first, and lost ones before all; a dash for what is not known."""
    slot = {
        "name": "near", "plugin": "pgoutput", "owner": None, "confirmed_lsn": "0/99", "behind_bytes": 5,
        "behind_seconds": 0.0, "is_connected": None, "is_lost": False,
    }  # fmt: skip
    far = {**slot, "name": "far", "behind_bytes": 2_000_000, "is_connected": True, "owner": "me"}
    lost = {**slot, "name": "gone", "behind_seconds": None, "is_lost": True}
    changes["virtual_slots"] = [slot, far, lost]
    assert main(["status", config(tmp_path, port)]) == EX_OK
    told = [line for line in capsys.readouterr().out.splitlines() if "virtual slot" in line]
    assert told == [
        " orders: virtual slot gone: lost, confirmed 0/99, 5 B and - behind, user -, plug-in pgoutput",
        (
            " orders: virtual slot far: connected, confirmed 0/99, 2.0 MB and 0 s behind, user me, "
            "plug-in pgoutput"
        ),
        " orders: virtual slot near: -, confirmed 0/99, 5 B and 0 s behind, user -, plug-in pgoutput",
    ]


def test_says_whether_clients_are_served(
    tmp_path: Path, port: int, changes: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the server runs in the daemon, with the reason if it does not."""
    serve = {"state": "serving", "reason": None, "listen": "127.0.0.1:15432", "pid": 7, "starts": 1}
    reason = "serve.listen: 127.0.0.1:15432: Address already in use"
    for told, end in (
        (serve, "serving"),
        ({**serve, "state": "retrying", "reason": reason}, f"retrying: {reason}"),
    ):
        changes["serve"] = told
        assert main(["status", config(tmp_path, port)]) == EX_OK
        lines = capsys.readouterr().out.splitlines()
        assert f" orders: serve at 127.0.0.1:15432: {end}" in lines


def test_json_gives_every_field(
    tmp_path: Path, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """One object a line."""
    assert main(["status", "--json", config(tmp_path, port)]) == EX_OK
    assert json.loads(capsys.readouterr().out) == RECORD


def test_a_silent_daemon_is_named(
    tmp_path: Path, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others are still printed; the end says who is missing and where to look."""
    good, silent = config(tmp_path, port), config(tmp_path, 1, "events")
    assert main(["status", silent, good]) == EX_UNAVAILABLE
    out, err = capsys.readouterr()
    assert "queue0: 3" in out
    assert "events.yaml: no daemon answers on 127.0.0.1:1" in err
    assert "systemctl status gaussdecode@events" in err


def test_another_slots_daemon_is_noticed(
    tmp_path: Path, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two configurations with one port are a mistake worth a sentence."""
    assert main(["status", config(tmp_path, port, "events")]) == EX_UNAVAILABLE
    assert "follows slot orders, not events" in capsys.readouterr().err


def test_a_directory_stands_for_its_files(
    tmp_path: Path, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every *.yaml in it, in order of their names."""
    config(tmp_path, port)
    config(tmp_path, 1, "events")
    (tmp_path / "orders.password").write_text("secret")
    assert main(["status", str(tmp_path)]) == EX_UNAVAILABLE
    out, err = capsys.readouterr()
    assert "queue0: 3" in out
    assert "events.yaml: no daemon answers" in err
    assert "password" not in err


def test_an_empty_directory_is_a_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing to show is not all well."""
    assert main(["status", str(tmp_path)]) == EX_CONFIG
    assert "no configuration (*.yaml)" in capsys.readouterr().err


@pytest.mark.parametrize("state", ["starting", "connecting", "retrying", "stopping"])
def test_scripts_see_that_nothing_streams(
    tmp_path: Path, port: int, changes: dict[str, object], state: str
) -> None:
    """What the daemon does not call well ends with 69; its table of states says when that is."""
    changes.update(state=state, detail="server away", is_well=False)
    assert main(["status", config(tmp_path, port)]) == EX_UNAVAILABLE


def test_scripts_see_a_lag(tmp_path: Path, port: int, changes: dict[str, object]) -> None:
    """Only above what was asked for."""
    changes.update(lag_seconds=30.0)
    path = config(tmp_path, port)
    assert main(["status", "--max-lag", "31", path]) == EX_OK
    assert main(["status", "--max-lag", "29", path]) == EX_UNAVAILABLE


def test_a_lag_that_is_not_known_is_not_within_the_limit(
    tmp_path: Path, port: int, changes: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    """It is a dash, and who gave a limit is told why it is not kept."""
    changes.update(lag_seconds=None, lag_bytes=None, reader_lsn=None)
    path = config(tmp_path, port)
    assert main(["status", path]) == EX_OK
    plain = capsys.readouterr()
    assert "| -          |" in plain.out
    assert "not known" not in plain.err
    assert main(["status", "--max-lag", "99", path]) == EX_UNAVAILABLE
    assert "The lag is not known, so it is not within --max-lag" in capsys.readouterr().err


def test_waiting(
    changes: dict[str, object], port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Until it is well and existing rows have landed; a daemon that is not there may come."""
    path = config(tmp_path, port)
    for missing in ({"is_snapshot_settled": False}, {"is_well": False}):
        changes.update({"is_snapshot_settled": True, **missing})
        assert main(["status", "--wait", "0.1", path]) == EX_UNAVAILABLE
        timer = threading.Timer(
            0.3, changes.update, [{"is_well": True, "is_snapshot_settled": True}]
        )
        timer.start()
        assert main(["status", "--wait", "60", path]) == EX_OK
        timer.join()
    absent = config(tmp_path, 1)
    assert main(["status", "--wait", "0.1", absent]) == EX_UNAVAILABLE
    assert "no daemon answers" in capsys.readouterr().err


def test_a_broken_configuration_does_not_hide_the_others(
    tmp_path: Path, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is named after them; --wait does not wait for it."""
    config(tmp_path, port)
    (tmp_path / "broken.yaml").write_text("slot: [")
    assert main(["status", "--wait", "600", str(tmp_path)]) == EX_CONFIG
    said = capsys.readouterr()
    assert "16/B374D848" in said.out
    assert "broken.yaml:1: not YAML" in said.err


def test_a_second_run_names_the_first(tmp_path: Path, port: int) -> None:
    """The port is taken by the slot's own daemon: another port would not help."""
    path = Path(config(tmp_path, port))
    loaded = load(path)
    error = ConfigError(f"monitoring.listen: 127.0.0.1:{port}: address in use")
    told = _second_run(loaded, error)
    assert told is not None
    assert "the daemon of slot orders runs already (streaming)" in str(told)
    assert _second_run(loaded, ConfigError("landing.root: missing")) is None
    other = load(Path(config(tmp_path, port, "other")))
    assert _second_run(other, error) is None


def test_a_snapshot_needs_a_landing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command that makes it is named."""
    path = tmp_path / "orders.yaml"
    path.write_text(
        "slot: orders\nsource: {kind: postgresql, dsn: host=db dbname=d user=u, publication: [p]}\n"
        f"landing: {{root: {tmp_path}/landing}}\n"
    )
    for _ in range(2):
        assert main(["snapshot", "--all", str(path)]) == EX_CONFIG
        told = capsys.readouterr().err
        assert f"there is no landing at {tmp_path}/landing yet" in told
        assert f"gaussdecode slot create {path}" in told
        (tmp_path / "landing").mkdir(exist_ok=True)


def test_a_broken_key_is_shown_without_its_escapes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A terminal does not act on what a file has."""
    (tmp_path / "x.yaml").write_text('"a\\e[31mb": 1\n')
    assert main(["check", str(tmp_path / "x.yaml")]) == EX_CONFIG
    told = capsys.readouterr().err
    assert "a\\x1b[31mb: unknown key" in told
    assert "\x1b" not in told


# ---- TLS ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two certificates that are equal but for their key, and one that has expired."""
    directory = tmp_path_factory.mktemp("certificates")
    make_certificates(directory)
    sign(directory, "other")
    sign(directory, "expired", begin_days=-9, end_days=-2)
    return directory


@pytest.fixture
def tls_port(made: Path) -> Iterator[int]:
    """Port of a daemon that says `RECORD` over TLS, with a cause."""
    context = server_context(PortFiles(made / "server.pem", made / "server.key"))
    causes = [{"what": "It lags.", "action": "Look.", "name": "lagging", "severity": "warning",
               "consequences": [], "runbook": "/alerts#x"}]  # fmt: skip
    server = MonitoringServer(
        Address("127.0.0.1", 0),
        render_metrics=lambda: b"",
        take_status=lambda: {**RECORD, "causes": causes},
        is_alive=lambda: True,
        readiness=lambda: (True, "ready"),
        tls=lambda: context,
    )
    server.start()
    yield server.address.port
    server.close()


def tls_config(directory: Path, port: int, made: Path, name: str = "server") -> str:
    """Write a configuration that listens on a port with TLS."""
    path = Path(config(directory, port))
    files = f", tls-certificate-file: {made}/{name}.pem, tls-key-file: {made}/{name}.key"
    path.write_text(path.read_text().replace(f"{port}'", f"{port}'{files}"))
    return str(path)


def test_it_asks_over_tls(
    tmp_path: Path, made: Path, tls_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """`status`, `top` and `check` trust the file of the configuration; an address leads to https."""
    path = tls_config(tmp_path, tls_port, made)
    assert main(["status", path]) == EX_OK
    assert "16/B374D848" in capsys.readouterr().out
    assert main(["top", path]) == EX_OK
    assert "It lags." in capsys.readouterr().out
    found = examine_port(load(Path(path)))
    assert (found.problem, found.record and found.record["slot_name"]) == (None, "orders")
    assert f"https://127.0.0.1:{tls_port}/alerts#x says more" in found.findings[0].why


def test_another_certificate_is_not_the_daemons(
    tmp_path: Path, made: Path, tls_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Though the same authority has signed it for the same name: the log of the daemon is named."""
    path = tls_config(tmp_path, tls_port, made, "other")
    assert main(["status", path]) == EX_UNAVAILABLE
    told = capsys.readouterr().err
    assert f"tls-certificate-file: {made}/other.pem: what answers on 127.0.0.1:{tls_port}" in told
    assert "journalctl -u gaussdecode@orders" in told
    assert "shows another certificate" in (examine_port(load(Path(path))).problem or "")


def test_a_daemon_with_a_former_configuration_is_told(
    tmp_path: Path, made: Path, port: int, tls_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """TLS is in one of file and daemon: neither is taken for another program."""
    assert main(["status", tls_config(tmp_path, port, made)]) == EX_UNAVAILABLE
    told = capsys.readouterr().err
    assert f"127.0.0.1:{port} answers without TLS, unlike monitoring in the configuration" in told
    assert main(["status", config(tmp_path, tls_port)]) == EX_UNAVAILABLE
    told = capsys.readouterr().err
    assert f"127.0.0.1:{tls_port} answers with TLS, unlike" in told
    assert "gaussdecode ctl orders reload" in told


@pytest.mark.parametrize(
    ("content", "text"), [(None, "No such file"), ("x", "no certificate in PEM")]
)
def test_a_certificate_that_cannot_be_compared_is_named(
    tmp_path: Path,
    tls_port: int,
    capsys: pytest.CaptureFixture[str],
    content: str | None,
    text: str,
) -> None:
    """It is gone, or no certificate."""
    files = tmp_path / "files"
    files.mkdir()
    if content is not None:
        (files / "server.pem").write_text(content)
    assert main(["status", tls_config(tmp_path, tls_port, files)]) == EX_UNAVAILABLE
    told = capsys.readouterr().err
    assert f"tls-certificate-file: {files}/server.pem: " in told
    assert text in told


def test_check_reads_the_files(tmp_path: Path, made: Path, port: int) -> None:
    """As a start does, before anything is asked."""
    problem = examine_port(load(Path(tls_config(tmp_path, port, made, "expired")))).problem
    assert problem is not None
    assert problem.startswith(f"monitoring.tls-certificate-file: {made}/expired.pem: has expired")
    shutil.copy(made / "other.key", tmp_path / "server.key")
    shutil.copy(made / "server.pem", tmp_path / "server.pem")
    problem = examine_port(load(Path(tls_config(tmp_path, port, tmp_path)))).problem
    assert f"tls-key-file: {tmp_path}/server.key: is not the key of" in (problem or "")
