"""The HTTP session of models that are asked directly: kept connections, TLS, proxies.

Rule 1: a connection on which the server has sent anything between two replies is not used again. aiohttp would read it
as the reply to the next request, which may be another run's.
Rule 2: proxies come from the environment, credentials never do: aiohttp's `trust_env` would also send those of
`~/.netrc`.
"""

import os
import ssl
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import certifi
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

CONNECT_TIMEOUT_S = 10.0
KEEP_ALIVE_S = 15.0
"""An idle connection is closed after this time, before most servers close it."""
READ_BUFFER_BYTES = 1 << 18


class _Connector(aiohttp.TCPConnector):
    async def _get(self, key: ConnectionKey, traces: list[Trace]) -> Connection | None:
        while (connection := await super()._get(key, traces)) is not None:
            protocol = connection.protocol
            if protocol is not None and not protocol.should_close:
                return connection
            connection.close()
        return None


def open_session() -> aiohttp.ClientSession:
    """Return a session without a limit of connections or of total time."""
    context = ssl.create_default_context(cafile=os.environ.get("SSL_CERT_FILE") or certifi.where())
    return aiohttp.ClientSession(
        connector=_Connector(limit=0, keepalive_timeout=KEEP_ALIVE_S, ssl=context),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        read_bufsize=READ_BUFFER_BYTES,
    )


def proxy_of(url: str) -> str | None:
    """Return the proxy for an address, as HTTP_PROXY, HTTPS_PROXY and NO_PROXY say."""
    parts = urlsplit(url)
    return None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)
