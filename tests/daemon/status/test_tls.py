"""Tests for `gaussdecode.daemon.status.tls`: the monitoring port over TLS, and the files that it needs."""

import contextlib
import http.client
import math
import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.certificates import sign
from kit.postgres import make_certificates

from gaussdecode.daemon.control import Answer
from gaussdecode.daemon.httpacts import HttpActs
from gaussdecode.daemon.status.http import MAX_CONNECTIONS, NEEDS_TLS, MonitoringServer
from gaussdecode.daemon.status.tls import PortTls, server_context
from gaussdecode.errors import AccessError, ConfigError
from gaussdecode.host.certificates import CertificateEnd
from gaussdecode.operations.check.certificates import examine_certificates
from gaussdecode.settings.load import load
from gaussdecode.settings.sections import PortFiles
from gaussdecode.settings.types import Address

Ask = Callable[..., tuple[int, bytes]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority and what it has signed: of the port, of a client, and such that no longer or not yet holds."""
    directory = tmp_path_factory.mktemp("certificates")
    make_certificates(directory)
    sign(directory, "renewed")
    sign(directory, "client", common="operator")
    sign(directory, "expired", begin_days=-9, end_days=-2)
    sign(directory, "early", begin_days=2, end_days=9)
    return directory


@pytest.fixture
def files(made: Path, tmp_path: Path) -> PortFiles:
    """Files of a port that takes certificates of clients."""
    found = PortFiles(tmp_path / "port.pem", tmp_path / "port.key", made / "authority.pem")
    shutil.copy(made / "server.pem", found.certificate)
    shutil.copy(made / "server.key", found.key)
    return found


class Port:
    """A monitoring port over TLS.

    Attributes:
        asked: acts that were carried out, each with who asked.
    """

    def __init__(self, files: PortFiles) -> None:
        self.asked: list[tuple[object, str]] = []
        self.tls = PortTls(files)
        self.server = MonitoringServer(
            Address("127.0.0.1", 0),
            render_metrics=lambda: b"a 1\n",
            take_status=lambda: {"slot_name": "orders"},
            is_alive=lambda: True,
            readiness=lambda: (True, "ready"),
            render_page=lambda name: f"for {name}".encode(),
            act=HttpActs(self._act, None),
            tls=self.tls.context,
        )
        self.server.start()
        self.place = self.server.address.host, self.server.address.port

    def _act(self, act: object, _table: object, by: str, _seconds: float) -> Answer:
        self.asked.append((act, by))
        return Answer(is_done=True, text="told")

    def ask(
        self, context: ssl.SSLContext, method: str = "GET", path: str = "/metrics", **headers: str
    ) -> tuple[int, bytes]:
        """Send one request."""
        connection = http.client.HTTPSConnection(*self.place, timeout=60, context=context)
        with contextlib.closing(connection):
            connection.request(
                method, path, b'{"act": "pause"}' if method == "POST" else None, headers
            )
            response = connection.getresponse()
            return response.status, response.read()

    def shown(self) -> bytes:
        """The certificate that it shows."""
        return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(self.place, timeout=60))


@pytest.fixture
def port(files: PortFiles) -> Iterator[Port]:
    """A running one."""
    running = Port(files)
    yield running
    running.server.close()


def client(made: Path, name: str | None = None) -> ssl.SSLContext:
    """What a client trusts, and the certificate that it shows."""
    context = ssl.create_default_context(cafile=str(made / "authority.pem"))
    if name is not None:
        context.load_cert_chain(made / f"{name}.pem", made / f"{name}.key")
    return context


def der(path: Path) -> bytes:
    """The first certificate of a file."""
    return ssl.PEM_cert_to_DER_cert(path.read_text())


# ---- files --------------------------------------------------------------------------------


def test_right_files_give_tls_1_2_and_newer(files: PortFiles) -> None:
    """And nothing older; the key may be root's with its group's right to read."""
    files.key.chmod(0o640 if os.geteuid() == 0 else 0o400)
    assert server_context(files).minimum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    ("certificate", "key", "text"),
    [
        ("expired", "expired", r"tls-certificate-file: .*has expired: it is valid from .* to .* UTC, and this .*; renew the"),
        ("early", "early", r"tls-certificate-file: .* is not valid yet: it is valid from"),
        ("server", "renewed", r"tls-key-file: .*is not the key of the first certificate in .*port\.pem"),
        ("server", None, r"tls-key-file: .*holds no private key in PEM form"),
        (None, "server", r"tls-certificate-file: .*holds no certificate in PEM form"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used_is_named(
    made: Path, files: PortFiles, certificate: str | None, key: str | None, text: str
) -> None:
    """With its key, and what is wrong with it."""
    files.certificate.write_text((made / f"{certificate}.pem").read_text() if certificate else "x")
    files.key.write_text((made / f"{key}.key").read_text() if key else "x")
    with pytest.raises(ConfigError, match=f"monitoring.{text}"):
        server_context(files)


@pytest.mark.parametrize(("mode", "is_refused"), [(0o660, True), (0o604, True), (0o600, False)])
def test_a_key_that_others_may_read_is_refused(
    files: PortFiles, mode: int, is_refused: bool
) -> None:
    """With its owner and mode, and what to do."""
    files.key.chmod(mode)
    if not is_refused:
        server_context(files)
        return
    with pytest.raises(
        ConfigError, match=rf"tls-key-file: .*mode {mode:04o}: it is open .* chmod 0600"
    ):
        server_context(files)


def test_a_key_with_a_password_is_refused_and_nobody_is_asked(made: Path, files: PortFiles) -> None:
    """OpenSSL would ask at the terminal."""
    command = ["openssl", "pkey", "-in", f"{made}/server.key", "-aes256", "-passout", "pass:geheim"]
    subprocess.run([*command, "-out", str(files.key)], check=True, capture_output=True)
    with pytest.raises(ConfigError, match=r"tls-key-file: .* protected by a password"):
        server_context(files)


@pytest.mark.parametrize("name", ["server.pem", "server.key"])
def test_a_client_ca_must_be_an_authority(made: Path, files: PortFiles, name: str) -> None:
    """Not a certificate of a host, and no file of another kind."""
    wrong = PortFiles(files.certificate, files.key, made / name)
    with pytest.raises(ConfigError, match=r"tls-client-ca-file: .* no certificate of an authority"):
        server_context(wrong)


@pytest.mark.parametrize("which", ["certificate", "key", "client-ca"])
def test_missing_files_are_named(files: PortFiles, tmp_path: Path, which: str) -> None:
    """Each by its key."""
    paths = {"certificate": files.certificate, "key": files.key, "client-ca": tmp_path / "ca.pem"}
    shutil.copy(files.client_ca or "", paths["client-ca"])
    named = PortFiles(paths["certificate"], paths["key"], paths["client-ca"])
    paths[which].unlink()
    with pytest.raises(ConfigError, match=f"tls-{which}-file: .*No such file"):
        server_context(named)


def test_a_file_of_another_account_is_named(
    files: PortFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With who may not read it, and whose it is."""

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(AccessError, match=r"port\.pem: Permission denied for user .*belongs to"):
        server_context(files)


# ---- the port -----------------------------------------------------------------------------


def test_pages_come_over_tls(made: Path, port: Port) -> None:
    """To a client that trusts the authority, and checks the name."""
    assert port.ask(client(made)) == (200, b"a 1\n")
    assert port.ask(client(made), path="/livez") == (200, b"alive\n")


def test_an_answer_has_an_end(made: Path, port: Port) -> None:
    """TLS says that no more comes: a cut answer is no whole one."""
    raw = socket.create_connection(port.place, timeout=60)
    context = client(made)
    context.options &= ~getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
    with context.wrap_socket(
        raw, server_hostname="127.0.0.1", suppress_ragged_eofs=False
    ) as secured:
        secured.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
        said = b""
        while more := secured.recv(4096):
            said += more
    assert said.endswith(b"alive\n")


def test_a_request_without_tls_is_told_so(port: Port) -> None:
    """In plain words, and the port serves on."""
    plain = http.client.HTTPConnection(*port.place, timeout=60)
    with contextlib.closing(plain):
        plain.request("GET", "/metrics")
        response = plain.getresponse()
        assert (response.status, response.read()) == (400, NEEDS_TLS)


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01", b"\x00" * 9, b"SSH-2.0-x\r\n"])
def test_who_does_not_finish_a_handshake_costs_no_scrape(
    made: Path, port: Port, said: bytes
) -> None:
    """More of them than there are places: each scrape is answered."""
    silent = [socket.create_connection(port.place, timeout=60) for _ in range(2 * MAX_CONNECTIONS)]
    try:
        for each in silent:
            each.sendall(said)
        for _ in range(3):
            assert port.ask(client(made)) == (200, b"a 1\n")
    finally:
        for each in silent:
            each.close()


def test_a_handshake_has_its_time(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a client that says a little again and again."""
    monkeypatch.setattr("gaussdecode.daemon.status.http.MAX_SECONDS", 0.3)
    with socket.create_connection(port.place, timeout=60) as slow:
        slow.sendall(b"\x16\x03\x01")
        assert slow.recv(1) == b""


def test_it_answers_over_tls_where_the_system_has_no_thread(
    made: Path, port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other; who says nothing is not waited for."""

    def start(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", start)
    with socket.create_connection(port.place) as silent:
        assert port.ask(client(made), path="/livez")[0] == 200
        assert not silent.recv(1)


# ---- other files --------------------------------------------------------------------------


def _replace(made: Path, files: PortFiles, name: str) -> None:
    for path, suffix in ((files.certificate, "pem"), (files.key, "key")):
        shutil.copy(made / f"{name}.{suffix}", path.with_suffix(".new"))
        path.with_suffix(".new").rename(path)


def test_a_new_certificate_is_taken_without_a_restart(
    made: Path, files: PortFiles, port: Port
) -> None:
    """By the next connection; one half of it is not, and the former stays."""
    assert port.shown() == der(made / "server.pem")
    shutil.copy(made / "renewed.pem", files.certificate)
    assert port.shown() == der(made / "server.pem")
    shutil.copy(made / "renewed.key", files.key)
    assert port.shown() == der(made / "renewed.pem")
    assert "valid from" in port.tls.reread()


def test_a_bad_certificate_leaves_the_former_in_use(
    made: Path, files: PortFiles, port: Port
) -> None:
    """And who asks for it is told."""
    _replace(made, files, "expired")
    with pytest.raises(ConfigError, match=r"has expired: .*; the former certificate stays in use"):
        port.tls.reread()
    assert port.shown() == der(made / "server.pem")
    files.certificate.unlink()
    assert port.shown() == der(made / "server.pem")


# ---- clients with a certificate -----------------------------------------------------------


def test_a_certificate_is_good_in_place_of_a_token(made: Path, port: Port) -> None:
    """The log has its name; without one, nobody may act here."""
    assert port.ask(client(made, "client"), "POST", "/ctl")[0] == 200
    assert port.asked == [("pause", "HTTP client 127.0.0.1, certificate 'operator'")]
    status, body = port.ask(client(made), "POST", "/ctl")
    assert status == 403
    assert b"no certificate of monitoring.tls-client-ca-file" in body
    assert len(port.asked) == 1


def test_the_page_knows_whose_certificate_is_good(made: Path, port: Port) -> None:
    """So it has buttons for this client, and for no other."""
    assert port.ask(client(made, "client"), path="/")[1] == b"for 'operator'"
    assert port.ask(client(made), path="/")[1] == b"for None"


def test_a_page_of_others_does_not_act_with_it(made: Path, port: Port) -> None:
    """A browser shows the certificate without asking; our own page may use it."""
    host = "{}:{}".format(*port.place)
    with_certificate = client(made, "client")
    for origin in (
        "https://evil.example",
        "null",
        "https://127.0.0.1:1",
        "x",
        "https://[",
        f"http://{host}",
    ):
        assert port.ask(with_certificate, "POST", "/ctl", Origin=origin)[0] == 403
    for site in ("cross-site", "same-site", "none"):
        headers = {"Sec-Fetch-Site": site}
        assert port.ask(with_certificate, "POST", "/ctl", **headers)[0] == 403
    assert port.asked == []
    assert port.ask(with_certificate, "POST", "/ctl", Origin=f"https://{host}")[0] == 200


@pytest.mark.parametrize("name", ["expired", "early", "foreign"])
def test_a_bad_certificate_of_a_client_is_refused(
    made: Path, port: Port, tmp_path: Path, name: str
) -> None:
    """Before it can ask for anything."""
    if name == "foreign":
        make_certificates(tmp_path)
        sign(tmp_path, name)
    wrong = client(made)
    at = tmp_path if name == "foreign" else made
    wrong.load_cert_chain(at / f"{name}.pem", at / f"{name}.key")
    with pytest.raises((OSError, http.client.HTTPException)):
        port.ask(wrong, "POST", "/ctl")
    assert port.asked == []


def test_without_an_authority_no_certificate_counts(made: Path, files: PortFiles) -> None:
    """It is not even asked for."""
    running = Port(PortFiles(files.certificate, files.key))
    try:
        assert running.ask(client(made, "client"), "POST", "/ctl")[0] == 403
        assert running.ask(client(made, "client"))[0] == 200
    finally:
        running.server.close()
    assert running.asked == []


# ---- when it ends -------------------------------------------------------------------------


def test_the_end_told_is_that_of_the_certificate_in_use(made: Path, files: PortFiles) -> None:
    """Also while a file that cannot be used is there; of a file that cannot be read it is not known."""
    tls, of_file = PortTls(files), CertificateEnd(files.certificate)
    dates = ["openssl", "x509", "-noout", "-enddate", "-in", str(made / "server.pem")]
    told = subprocess.run(dates, check=True, capture_output=True, text=True).stdout
    end = ssl.cert_time_to_seconds(told.strip().removeprefix("notAfter="))
    assert tls.end == of_file.seconds() == end
    _replace(made, files, "expired")
    tls.context()
    assert tls.end == end > of_file.seconds()
    files.certificate.write_text("x")
    assert math.isnan(of_file.seconds())
    sign(made, "later", end_days=20)
    _replace(made, files, "later")
    tls.context()
    assert tls.end == of_file.seconds() > end
    files.certificate.unlink()
    assert math.isnan(of_file.seconds())


@pytest.mark.parametrize(("days", "is_soon"), [(13.5, True), (15, False)])
def test_check_finds_a_certificate_that_ends_soon(
    made: Path, files: PortFiles, tmp_path: Path, days: float, is_soon: bool
) -> None:
    """That of the port and that for the server; one that cannot be read is named as such."""
    sign(made, "long", end_days=days)
    _replace(made, files, "long")
    path = tmp_path / "orders.yaml"
    path.write_text(
        "slot: orders\nsource: {kind: gaussdb, allow-insecure: true, dsn: 'host=h port=1 dbname=d user=u "
        f"sslmode=require sslcert={tmp_path}/none.pem'}}\nlanding: {{root: {tmp_path}/landing}}\n"
        f"monitoring: {{tls-certificate-file: {files.certificate}, tls-key-file: {files.key}}}\n"
    )
    found = [each.what for each in examine_certificates(load(path))]
    assert "source.sslcert cannot be read" in found[0]
    assert ["tls-certificate-file ends in 13 days" in each for each in found[1:]] == [
        True
    ] * is_soon
