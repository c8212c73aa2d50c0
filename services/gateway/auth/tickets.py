"""Tickets: each opens one event stream without a key, for pages whose `EventSource` cannot send one.

    <base64url of the JSON [tenant, key's name, end in Unix ms]>.<base64url of an HMAC-SHA-256>

Rule 1: the HMAC covers what the ticket says, the path that it opens, and the digest of the key that asked for it. So a
ticket opens nothing else, and is dead with its key.
Rule 2: its secret is the tenant's, in the bucket of runs, so that every gateway knows the tickets of the others.
Rule 3: a ticket is neither stored nor logged.
"""

import base64
import hmac
import json
import secrets
from collections.abc import Callable
from dataclasses import replace

from contracts.runs.requests import TicketSecret
from contracts.wire import keys
from contracts.wire.names import unix_ms
from services.gateway.errors import KeyMissing, TicketExpired
from services.messaging.kv import Bucket

from .caller import Caller


class Tickets:
    """Makes and reads tickets. `named`: returns the caller of a tenant whose key has this name."""

    def __init__(self, entries: Bucket, named: Callable[[str, str], Caller | None]) -> None:
        self._entries = entries
        self._named = named
        self._secrets: dict[str, bytes] = {}
        """By tenant."""

    async def new(self, caller: Caller, path: str, ends_at: int) -> str:
        """Return a ticket for what the caller may read at a path, until then (Unix ms). Raises BusError."""
        said = _encoded(json.dumps([caller.tenant, caller.key_id, ends_at]).encode())
        return f"{said}.{await self._signature(caller, said, path)}"

    async def caller(self, ticket: str, path: str) -> Caller:
        """Return who asked for a ticket of this path. Raises KeyMissing, TicketExpired and BusError."""
        said, _, signature = ticket.partition(".")
        try:
            tenant, name, ends_at = json.loads(base64.urlsafe_b64decode(said + "=" * (-len(said) % 4)))
            caller = self._named(tenant, name)
        except (ValueError, TypeError, RecursionError):
            raise KeyMissing from None
        if caller is None or not hmac.compare_digest(
            signature.encode(), (await self._signature(caller, said, path)).encode()
        ):
            raise KeyMissing
        if unix_ms() >= ends_at:
            raise TicketExpired
        return replace(caller, ends_at=ends_at)

    async def _signature(self, caller: Caller, said: str, path: str) -> str:
        if (secret := self._secrets.get(caller.tenant)) is None:
            made = TicketSecret(secret=secrets.token_hex(32))
            stored = await self._entries.get_or_make(keys.ticket_secret(caller.tenant), made)
            secret = self._secrets[caller.tenant] = bytes.fromhex(stored.secret)
        return _encoded(hmac.digest(secret, f"{said}\n{caller.digest}\n{path}".encode(), "sha256"))


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
