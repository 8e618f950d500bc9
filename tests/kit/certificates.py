"""Certificates of an authority that `kit.postgres.make_certificates` has made: other names, other times."""

import datetime
import subprocess
from pathlib import Path

_CONFIG = (
    "[ca]\ndefault_ca=d\n[d]\ndatabase={database}\nnew_certs_dir=.\nrand_serial=yes\ndefault_md=sha256\n"
    "policy=p\nunique_subject=no\ncopy_extensions=copy\ncertificate=authority.pem\n"
    "private_key=authority.key\n[p]\ncommonName=supplied\n"
)
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def sign(
    directory: Path,
    name: str,
    *,
    begin_days: float = -1,
    end_days: float = 7,
    common: str = "",
    authority: str = "",
) -> Path:
    """Make a key, ``NAME.key``, and a certificate, ``NAME.pem``, for 127.0.0.1 and localhost.

    Args:
        directory: has ``authority.pem`` and ``authority.key``.
        name: of the files.
        begin_days: days from now on when it begins to be valid.
        end_days: days from now on when that ends.
        common: its common name, if it is no host.
        authority: its common name, if it is an authority, which signs itself.

    Returns:
        The path of the certificate.
    """
    (directory / f"{name}.cnf").write_text(_CONFIG.format(database=f"{name}.index"))
    (directory / f"{name}.index").write_text("")
    now = datetime.datetime.now(datetime.UTC)
    begin, end = (
        f"{now + datetime.timedelta(days=days):%Y%m%d%H%M%SZ}" for days in (begin_days, end_days)
    )
    subject = f"/CN={common or authority or '127.0.0.1'}"
    names = [] if common else ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    if authority:
        names = ["-addext", "basicConstraints=critical,CA:TRUE"]
    signer = ["-selfsign", "-keyfile", f"{name}.key"] if authority else []
    for command in (
        ["req", *_KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", subject, *names],
        ["ca", "-batch", "-notext", "-config", f"{name}.cnf", "-in", f"{name}.csr", "-startdate", begin,
         "-enddate", end, "-out", f"{name}.pem", *signer],
    ):  # fmt: skip
        subprocess.run(["openssl", *command], cwd=directory, check=True, capture_output=True)
    (directory / f"{name}.key").chmod(0o600)
    return directory / f"{name}.pem"
