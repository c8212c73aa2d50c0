"""Tokens for a remote server by client credentials (OAuth 2.1): no person is asked in a browser.

Rule 1: the secret goes to the address that the operator names, or to that in the metadata of the operator's issuer;
never to one that the server of the tools names, and no redirect is followed.
Rule 2: a token is kept until shortly before it expires, and replaced once when the server refuses it.
Rule 3: no error quotes what was sent or received, beyond the standard's own codes of errors.
"""

import asyncio
import base64
import math
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast
from urllib.parse import quote_plus, urlsplit

import httpx2
from mcp.client.auth.utils import build_oauth_authorization_server_metadata_discovery_urls, issuers_match
from mcp.shared.auth import OAuthToken
from pydantic import BaseModel, ValidationError

from .config import ClientCredentials, McpServer, resolved

Answer = TypeVar("Answer", bound=BaseModel)
_EARLY_S = 60.0
"""Before a token expires, or in the middle of a shorter life."""
_MAX_BYTES = 256 << 10


class NoToken(Exception):
    """There is no token; the text says why."""


class _Metadata(BaseModel):
    issuer: str
    token_endpoint: str


class Tokens:
    """The token of one connection to a server with `oauth`. `send` sends a request once, and follows no redirect."""

    def __init__(self, server: McpServer, send: Callable[[httpx2.Request], Awaitable[httpx2.Response]]) -> None:
        self._server, self._send = server, send
        self._lock = asyncio.Lock()
        self._token, self._renew_at = "", -math.inf

    async def other_than(self, refused: str) -> str:
        """Return a token that the server has not refused. Raises NoToken."""
        async with self._lock:
            if self._token == refused or time.monotonic() >= self._renew_at:
                await self._renew()
            return self._token

    async def _renew(self) -> None:
        server, oauth = self._server, cast("ClientCredentials", self._server.oauth)
        try:
            name, secret = resolved(oauth.client_id), resolved(oauth.client_secret)
        except ValueError as error:
            raise NoToken(str(error)) from None
        resource = server.url if oauth.resource is None else oauth.resource
        form = {"grant_type": "client_credentials", "resource": resource or "", "scope": oauth.scope}
        headers = {}
        if oauth.client_auth == "body":
            form |= {"client_id": name, "client_secret": secret}
        else:
            login = base64.b64encode(f"{quote_plus(name)}:{quote_plus(secret)}".encode())
            headers["authorization"] = f"Basic {login.decode()}"
        url = oauth.token_url or await self._endpoint(oauth.issuer or "")
        given = {key: value for key, value in form.items() if value}
        found = await self._asked(OAuthToken, "POST", url, data=given, headers=headers)
        life_s = math.inf if found.expires_in is None else found.expires_in
        self._token, self._renew_at = found.access_token, time.monotonic() + max(life_s - _EARLY_S, life_s / 2)

    async def _endpoint(self, issuer: str) -> str:
        """Return the address of tokens that the metadata of an issuer name."""
        reason = NoToken(f"{issuer} has no metadata")
        for url in build_oauth_authorization_server_metadata_discovery_urls(issuer, issuer):
            try:
                found = await self._asked(_Metadata, "GET", url)
            except NoToken as error:
                reason = error
                continue
            if not issuers_match(found.issuer, issuer):
                raise NoToken(f"the metadata of {issuer} are those of another issuer")
            if urlsplit(found.token_endpoint).scheme not in {"https", urlsplit(issuer).scheme}:
                raise NoToken(f"the metadata of {issuer} name an address of tokens that is not https")
            return found.token_endpoint
        raise reason

    async def _asked(self, form: type[Answer], method: str, url: str, **content: Any) -> Answer:
        request = httpx2.Request(method, url, extensions={"timeout": httpx2.Timeout(15).as_dict()}, **content)
        request.headers.update({"accept": "application/json", "accept-encoding": "identity"})
        where, body = request.url.copy_with(query=None), b""
        try:
            response = await self._send(request)
            try:
                async for part in response.aiter_raw():
                    body += part[: _MAX_BYTES - len(body)]
            finally:
                await response.aclose()
            if response.status_code == httpx2.codes.OK:
                return form.model_validate_json(body)
        except httpx2.HTTPError as error:
            raise NoToken(f"{where} cannot be reached: {type(error).__name__}") from None
        except ValidationError:
            raise NoToken(f"{where} gave no answer of the expected form") from None
        named = re.search(rb'"error"\s*:\s*"([a-z_]{1,40})"', body)
        code = f" ({named[1].decode()})" if named else ""
        raise NoToken(f"{where} answered with the HTTP status {response.status_code}{code}")
