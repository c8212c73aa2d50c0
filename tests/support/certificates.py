"""Certificates of a test's own."""

import subprocess
from pathlib import Path

from .needs import needs_program


def make_certificates(folder: Path) -> Path:
    """Fill a folder with `ca.pem`, and with `server.pem` and `server.key` for 127.0.0.1; return it."""
    folder.mkdir()
    openssl = str(needs_program("openssl"))
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    ca = [*new_key, "-subj", "/CN=Test CA", "-addext", "keyUsage=critical,keyCertSign", "-keyout", "ca.key"]
    of_server = [*new_key, "-subj", "/CN=NATS", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "server.key"]
    of_server += ["-addext", "basicConstraints=critical,CA:FALSE", "-CA", "ca.pem", "-CAkey", "ca.key"]
    for arguments in ([*ca, "-out", "ca.pem"], [*of_server, "-out", "server.pem"]):
        subprocess.run([openssl, "req", "-x509", *arguments], cwd=folder, check=True, capture_output=True)
    return folder


def tls_of_server(folder: Path) -> str:
    """The lines of a server's configuration that name its certificate."""
    return f'tls {{ cert_file: "{folder}/server.pem", key_file: "{folder}/server.key" }}'
