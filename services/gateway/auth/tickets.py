"""Tickets and logins: what stands for an API key. What is stored of them is in the bucket of runs and opens nothing.

A ticket opens one event stream without a key, for pages whose `EventSource` cannot send one.

    <base64url of the JSON [tenant, key's name, end in Unix ms]>.<base64url of an HMAC-SHA-256>

Rule 1: the HMAC covers what the ticket says, the path that it opens, and the digest of the key that asked for it. So a
ticket opens nothing else, and is dead with its key.
Rule 2: its secret is the tenant's, in the bucket of runs, so that every gateway knows the tickets of the others.
Rule 3: a ticket is neither stored nor logged.

A login is a cookie of the playground, so that the page needs not keep the key: 32 random bytes, HttpOnly and
SameSite=Strict.

Rule 1: its entry is found by its digest, names the key, and proves by an HMAC that it was made with this very key.
Rule 2: it ends after 12 hours, with its key, and when its owner signs out.
Rule 3: it reaches this room only with requests of the gateway's own pages (`edge/origins`).
"""

import base64
import hmac
import json
import secrets
from collections.abc import Callable
from dataclasses import replace

from contracts.runs.requests import LoginEntry, TicketSecret
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


COOKIE = "runwire_login"
LOGIN_S = 12 * 3600


class Logins:
    """Makes, opens and ends them. `named`: returns the caller of a tenant whose key has this name."""

    def __init__(self, entries: Bucket, named: Callable[[str, str], Caller | None]) -> None:
        self._entries = entries
        self._named = named

    async def new(self, caller: Caller) -> str:
        """Return the cookie's value. Raises BusError."""
        login = secrets.token_urlsafe(32)
        entry = LoginEntry(
            tenant=caller.tenant,
            key_id=caller.key_id,
            proof=_proof(login, caller),
            ends_at=unix_ms() + LOGIN_S * 1000,
        )
        await self._entries.put(keys.login_key(login), entry, ttl_s=LOGIN_S)
        return login

    async def caller(self, login: str) -> Caller:
        """Return who signed in. Raises KeyMissing and BusError."""
        entry = (await self._entries.get(keys.login_key(login))).parsed(LoginEntry)
        caller = self._named(entry.tenant, entry.key_id) if entry else None
        if entry is None or caller is None or unix_ms() >= entry.ends_at:
            raise KeyMissing
        if not hmac.compare_digest(entry.proof, _proof(login, caller)):
            raise KeyMissing
        return replace(caller, ends_at=entry.ends_at)

    async def end(self, login: str) -> None:
        """End a login, if there is one. Raises BusError."""
        await self._entries.delete(keys.login_key(login))


def _proof(login: str, caller: Caller) -> str:
    return hmac.digest(login.encode(), caller.digest.encode(), "sha256").hex()
