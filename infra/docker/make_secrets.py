"""Make the deployment's secrets at its first start, in volumes that only those services mount that need them.

None is shipped, and none is ever replaced. What NATS reads is written at every start, as this version needs it.

| file | for |
| --- | --- |
| /s3-secrets/access_key, secret_key | the S3 server and artifact_store |
| /secrets/api_key | callers of the gateway, tenant `default` |
| /secrets/api_keys | the gateway: tenant and SHA-256 of the key |
| /identities/identities.json | this program and `runwire credentials`: users of NATS and their passwords |
| /identities/nats/accounts.conf | NATS: users and rights |
| /identities/nats/tls.conf | NATS: its certificate, if RUNWIRE_NATS_HOSTS is set (make_certificates.py makes it) |
| /logins/<service>/password | the service of that name |
| /tables-secrets/password | PostgreSQL and tables |
| /logins/tools/credential.json | the container `tools`: a credential for the names in RUNWIRE_TOOL_NAMES |
| /logins/tables/credential.json | the container `tables`: the same for RUNWIRE_TABLES_TOOL_NAMES |
"""

import hashlib
import os
import secrets
import subprocess
import sys
from pathlib import Path

GATEWAY = Path("/secrets")
STORE = Path("/s3-secrets")
TABLES = Path("/tables-secrets")
NATS = Path("/identities/nats")
LOGINS = Path("/logins")
TLS = """\
tls {
  cert_file: "/etc/nats/tls/server.pem"
  key_file: "/etc/nats/tls/server.key"
  timeout: 5
}
"""
OWNER = 10001
"""The user as whom the services run."""


def keep(path: Path, text: str) -> str:
    """Write a secret unless it is there, and return the one that counts."""
    if not path.exists():
        fresh = path.with_name(f".{path.name}")
        fresh.write_text(text, encoding="utf-8")
        fresh.chmod(0o440)
        os.chown(fresh, OWNER, OWNER)
        fresh.rename(path)
    return path.read_text(encoding="utf-8")


def credentials(*arguments: str) -> None:
    """Run `runwire credentials`. A failure ends this program."""
    subprocess.run([sys.executable, "-P", "-m", "runwire", "credentials", *arguments], check=True)


keep(STORE / "access_key", secrets.token_hex(10))
keep(STORE / "secret_key", secrets.token_hex(20))
keep(TABLES / "password", secrets.token_hex(20))
api_key = keep(GATEWAY / "api_key", secrets.token_urlsafe(32))
keep(GATEWAY / "api_keys", f"default {hashlib.sha256(api_key.encode()).hexdigest()}\n")
credentials("refresh", "--logins", str(LOGINS))
for container, setting in (("tools", "RUNWIRE_TOOL_NAMES"), ("tables", "RUNWIRE_TABLES_TOOL_NAMES")):
    file = str(LOGINS / container / "credential.json")
    credentials("tool", *os.environ[setting].split(), "--server", "nats://nats:4222", "--out", file)
for login in LOGINS.glob("*/*"):
    os.chown(login, OWNER, OWNER)
(NATS / "tls.conf").write_text(TLS if os.environ.get("RUNWIRE_NATS_HOSTS") else "", encoding="utf-8")
print("secrets are in place; the gateway's key: docker compose exec gateway cat /secrets/api_key")
