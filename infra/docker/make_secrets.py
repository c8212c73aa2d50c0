"""Make the deployment's secrets at its first start, in volumes that only those services mount that need them.

None is shipped, and none is ever replaced.

| file | for |
| --- | --- |
| /s3-secrets/access_key, secret_key | the S3 server and artifact_store |
| /secrets/api_key | callers of the gateway, tenant `default` |
| /secrets/api_keys | the gateway: tenant and SHA-256 of the key |
"""

import hashlib
import os
import secrets
from pathlib import Path

GATEWAY = Path("/secrets")
STORE = Path("/s3-secrets")
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


keep(STORE / "access_key", secrets.token_hex(10))
keep(STORE / "secret_key", secrets.token_hex(20))
api_key = keep(GATEWAY / "api_key", secrets.token_urlsafe(32))
keep(GATEWAY / "api_keys", f"default {hashlib.sha256(api_key.encode()).hexdigest()}\n")
print("secrets are in place; the gateway's key: docker compose exec gateway cat /secrets/api_key")
