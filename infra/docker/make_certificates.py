"""Make the certificates for TLS on NATS: an authority, and the server's, for the names in RUNWIRE_NATS_HOSTS.

The authority is made once and lasts ten years; clients need its certificate alone. The server's lasts a year, and is
made again when the names change or less than 60 days are left, so a deployment that is started every month keeps a
valid one.

| file | for |
| --- | --- |
| /nats-authority/ca.key | this program |
| /nats-ca/ca.pem | all that connect to NATS |
| /nats-tls/server.key, server.pem | nats-server |
"""

import ipaddress
import os
import subprocess
import sys
from pathlib import Path

AUTHORITY, CA, SERVER = Path("/nats-authority/ca.key"), Path("/nats-ca/ca.pem"), Path("/nats-tls")
OWN_NAMES = ("nats", "localhost", "127.0.0.1")
"""How services and processes on this machine reach the server."""
LEFT_S = 60 * 86_400
CURVE = ("-pkeyopt", "ec_paramgen_curve:P-256")


def openssl(*arguments: str | Path, stdin: str = "") -> str:
    """Run openssl. A failure ends this program with its text."""
    ran = subprocess.run(["openssl", *arguments], input=stdin, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        sys.exit(f"openssl {arguments[0]} failed: {ran.stderr.strip()}")
    return ran.stdout


def alternative(name: str) -> str:
    """Return a name or an address as a subjectAltName."""
    try:
        return f"IP:{ipaddress.ip_address(name)}"
    except ValueError:
        return f"DNS:{name}"


def make_authority() -> None:
    """Make the authority unless it is there."""
    if AUTHORITY.exists() and CA.exists():
        return
    extensions = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
    subject = ("-subj", "/CN=Runwire NATS", "-days", "3650", *extensions)
    openssl("req", "-x509", "-newkey", "ec", *CURVE, "-noenc", "-keyout", AUTHORITY, "-out", CA, *subject)
    CA.chmod(0o444)


def make_server(names: str) -> None:
    """Make the server's certificate unless there is one with these names that lasts."""
    made_for, key, certificate = SERVER / "names", SERVER / "server.key", SERVER / "server.pem"
    if made_for.exists() and made_for.read_text(encoding="utf-8") == names:
        check = ["openssl", "x509", "-in", str(certificate), "-noout", "-checkend", str(LEFT_S)]
        if subprocess.run(check, capture_output=True, check=False).returncode == 0:
            return
    new_key, new_certificate = SERVER / "key.new", SERVER / "pem.new"
    wanted = openssl("req", "-new", "-newkey", "ec", *CURVE, "-noenc", "-keyout", new_key, "-subj", "/CN=nats")
    (SERVER / "extensions").write_text(
        f"subjectAltName={names}\nextendedKeyUsage=serverAuth\nbasicConstraints=critical,CA:FALSE\n", encoding="utf-8"
    )
    signing = ("-CA", CA, "-CAkey", AUTHORITY, "-days", "365", "-extfile", SERVER / "extensions")
    openssl("x509", "-req", *signing, "-out", new_certificate, stdin=wanted)
    new_key.replace(key)
    new_certificate.replace(certificate)
    made_for.write_text(names, encoding="utf-8")
    print(f"made a certificate for {names}")


if __name__ == "__main__":
    hosts = os.environ.get("RUNWIRE_NATS_HOSTS", "").replace(",", " ").split()
    if not hosts:
        sys.exit("the profile `tls` needs RUNWIRE_NATS_HOSTS: the names and addresses at which NATS is reached")
    os.umask(0o077)
    make_authority()
    make_server(",".join(map(alternative, dict.fromkeys([*OWN_NAMES, *hosts]))))
