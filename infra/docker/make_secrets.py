"""Make the deployment's secrets at its first start, in a volume that only the services mount. None is shipped, none is ever replaced.

| file | for |
| --- | --- |
| s3_access_key, s3_secret_key | the S3 server and artifact_store |
| api_key | callers of the gateway, tenant `default` |
| api_keys | the gateway: tenant and SHA-256 of the key |
"""

import hashlib
import os
import secrets
from pathlib import Path

FOLDER = Path("/secrets")
OWNER = 10001
"""The user as whom the services run."""


def keep(name: str, text: str) -> str:
    """Write a secret unless it is there, and return the one that counts."""
    path = FOLDER / name
    if not path.exists():
        fresh = FOLDER / f".{name}"
        fresh.write_text(text, encoding="utf-8")
        fresh.chmod(0o440)
        os.chown(fresh, OWNER, OWNER)
        fresh.rename(path)
    return path.read_text(encoding="utf-8")


keep("s3_access_key", secrets.token_hex(10))
keep("s3_secret_key", secrets.token_hex(20))
api_key = keep("api_key", secrets.token_urlsafe(32))
keep("api_keys", f"default {hashlib.sha256(api_key.encode()).hexdigest()}\n")
print("secrets are in place; the gateway's key: docker compose exec gateway cat /secrets/api_key")
