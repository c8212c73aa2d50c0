"""API keys, and the protection of a gateway without any.

Rule 1: keys are 32 random bytes. Only their SHA-256 is stored. A key is compared with every entry, in constant time.
Rule 2: without keys the gateway listens on loopback only, and every request there belongs to the tenant `default`.
Rule 3: without keys the Host must be a loopback name. A page whose own name was bound to a loopback address (DNS
rebinding) would pass `edge/origins`, which refuses other pages.
Rule 4: a path needs a key unless `OPEN_PATHS` names it, also when its route does not use the tenant.

`python -m services.gateway.auth <tenant>` makes a key.
"""

import hashlib
import hmac
import ipaddress
import re
import secrets
import sys
from collections.abc import Mapping
from functools import lru_cache

from fastapi import Request

from contracts import names, subjects

from .errors import Forbidden, KeyMissing, StartRefused
from .settings import GatewaySettings

OPEN_PATHS = frozenset({"/", "/livez", "/readyz", "/openapi.json"})
"""Answered without a key: they show nothing of any tenant, and change nothing."""

_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_PORT = re.compile(r":[0-9]*$", re.ASCII)
_PREFIX = "rw_"


def new_key(tenant: str) -> tuple[str, str]:
    """Return a new key for the caller, and the line `tenant sha256hex` for the gateway. Raises InvalidName."""
    key = _PREFIX + secrets.token_urlsafe(32)
    return key, f"{names.checked_tenant(tenant)} {_digest(key)}"


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


@lru_cache(maxsize=16)
def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach `host`: `localhost`, an address of 127.0.0.0/8, or ::1."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Guard:
    """Finds the tenant of a request, or refuses the request."""

    def __init__(self, keys: list[tuple[str, str]]) -> None:
        """`keys`: pairs of tenant and SHA-256 in hexadecimal digits; empty for a gateway without keys."""
        self._keys = [(tenant, digest.encode()) for tenant, digest in keys]

    async def check(self, request: Request) -> None:
        """Put the tenant into `request.state`, unless the path is open. Raises KeyMissing or Forbidden."""
        if request.scope["path"] not in OPEN_PATHS:
            request.state.tenant = self.tenant_of(request.headers)

    def tenant_of(self, headers: Mapping[str, str]) -> str:
        """Return the tenant. Raises KeyMissing or Forbidden."""
        if not self._keys:
            _check_host(headers.get("host", ""))
            return subjects.DEFAULT_TENANT
        scheme, _, key = headers.get("authorization", "").partition(" ")
        digest_of_key = _digest(key.strip()).encode()
        found = None
        for tenant, digest in self._keys:
            if hmac.compare_digest(digest_of_key, digest):
                found = tenant
        if found is None or scheme.lower() != "bearer":
            raise KeyMissing
        return found


def _check_host(host: str) -> None:
    if not is_loopback(_PORT.sub("", host)):
        raise Forbidden(
            "Without API keys this gateway is reached under a loopback name only, such as 127.0.0.1 or localhost."
        )


def build_guard(settings: GatewaySettings) -> Guard:
    """Read the keys. Raises StartRefused for an invalid line, and for a public address without keys."""
    text = settings.api_keys.replace(",", "\n")
    if settings.api_keys_file is not None:
        try:
            text += "\n" + settings.api_keys_file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise StartRefused(f"RUNWIRE_API_KEYS_FILE cannot be read: {error}") from error
    keys = [_parsed(line) for line in map(str.strip, text.splitlines()) if line and not line.startswith("#")]
    if not keys and settings.api_keys_file is not None:
        raise StartRefused(f"RUNWIRE_API_KEYS_FILE names {settings.api_keys_file}, which holds no key.")
    if not keys and not is_loopback(settings.host):
        raise StartRefused(
            f"RUNWIRE_HOST is {settings.host}, which others can reach, and there are no API keys: "
            "set RUNWIRE_API_KEYS_FILE, or listen on 127.0.0.1."
        )
    return Guard(keys)


def _parsed(line: str) -> tuple[str, str]:
    """Split a line. Errors quote no value: the line may contain the key itself by mistake."""
    tenant, _, digest = line.partition(" ")
    try:
        names.checked_tenant(tenant)
    except names.InvalidName as error:
        raise StartRefused(
            "A line of the API keys does not begin with a tenant's name: expected `tenant sha256hex`."
        ) from error
    if not _DIGEST.fullmatch(digest.strip()):
        raise StartRefused(
            f"The API key of tenant {tenant} is not the SHA-256 of a key: expected 64 lower-case hexadecimal digits."
        )
    return tenant, digest.strip()


if __name__ == "__main__":
    if len(sys.argv) != 2:  # noqa: PLR2004, the program and one argument
        sys.exit("usage: python -m services.gateway.auth <tenant>")
    new, new_line = new_key(sys.argv[1])
    sys.stdout.write(f"key, for the caller: {new}\nline, for RUNWIRE_API_KEYS_FILE: {new_line}\n")
