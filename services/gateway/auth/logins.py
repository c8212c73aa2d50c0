"""Logins of the playground: a cookie that stands for an API key, so that the page needs not keep the key.

Rule 1: the cookie is 32 random bytes, HttpOnly and SameSite=Strict. What is stored, in the bucket of runs, is found by
its digest and opens nothing: it names the key, and proves by an HMAC that the login was made with this very key.
Rule 2: a login ends after 12 hours, with its key, and when its owner signs out.
Rule 3: the cookie reaches this room only with requests of the gateway's own pages (`edge/origins`).
"""

import hmac
import secrets
from collections.abc import Callable
from dataclasses import replace

from contracts.runs.requests import LoginEntry
from contracts.wire import keys
from contracts.wire.names import unix_ms
from services.gateway.errors import KeyMissing
from services.messaging.kv import Bucket

from .caller import Caller

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
