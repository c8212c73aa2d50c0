"""Who may ask: API keys, and what protects a gateway without any.

Rule 1: keys are random, 32 bytes; only their SHA-256 is stored, and a check looks at every entry in constant time.
Rule 2: without keys the gateway listens on loopback only and everybody there is the tenant `default`.
Rule 3: a web page must not reach a keyless gateway through its reader's browser: the Host must be a loopback name (DNS
rebinding) and an Origin, where there is one, the gateway's own (cross-site requests).
Rule 4: a path is closed unless `OPEN_PATHS` names it, also one whose route forgets to ask for the tenant.

`python -m services.gateway.auth <tenant>` makes a key.
"""

import hashlib
import hmac
import ipaddress
import re
import secrets
import sys
from collections.abc import Mapping

from contracts import names, subjects

from .errors import Forbidden, KeyMissing, StartRefused
from .settings import GatewaySettings

OPEN_PATHS = frozenset({"/", "/livez", "/readyz", "/openapi.json"})
"""All that is answered without a key: nothing of any tenant, nothing that changes anything."""

_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_PREFIX = "rw_"


def new_key(tenant: str) -> tuple[str, str]:
    """Make a key: the key itself, for the caller, and the line `tenant sha256hex`, for the gateway.

    Raises InvalidName.
    """
    key = _PREFIX + secrets.token_urlsafe(32)
    return key, f"{names.checked_tenant(tenant)} {_digest(key)}"


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`: `localhost`, or an address of 127.0.0.0/8 or ::1."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Guard:
    """Tells the tenant of a request, or refuses it."""

    def __init__(self, keys: list[tuple[str, str]]) -> None:
        """`keys` are pairs of tenant and SHA-256 as hexadecimal digits; none: keyless."""
        self._keys = [(tenant, digest.encode()) for tenant, digest in keys]

    def admit(self, headers: Mapping[str, str]) -> str:
        """Return the tenant. Raises KeyMissing or Forbidden."""
        if not self._keys:
            _check_local(headers)
            return subjects.DEFAULT_TENANT
        scheme, _, key = headers.get("authorization", "").partition(" ")
        shown = _digest(key.strip()).encode()
        found = None
        for tenant, digest in self._keys:
            if hmac.compare_digest(shown, digest):
                found = tenant
        if found is None or scheme.lower() != "bearer":
            raise KeyMissing
        return found


def _check_local(headers: Mapping[str, str]) -> None:
    host = headers.get("host", "")
    if not is_loopback(_name(host)):
        raise Forbidden(
            "Without API keys this gateway is reached under a loopback name only, such as 127.0.0.1 or localhost."
        )
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2] != host:
        raise Forbidden("Without API keys this gateway takes no requests from other web pages.")


def _name(host: str) -> str:
    """The Host header without its port."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]


def build_guard(settings: GatewaySettings) -> Guard:
    """Read the keys. Raises StartRefused for an unusable line, and for an open address without keys."""
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
    """Take a line apart. The complaints quote no value: somebody may have put the key itself there."""
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
    made, line_to_keep = new_key(sys.argv[1])
    sys.stdout.write(f"key, for the caller: {made}\nline, for RUNWIRE_API_KEYS_FILE: {line_to_keep}\n")
