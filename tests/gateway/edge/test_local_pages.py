"""Pages that this machine serves to itself may speak MCP with a gateway on it; every other page is refused."""

from services.gateway.auth.key_lines import new_key
from tests.gateway.edge.test_origins import FOREIGN, assert_hidden, assert_readable
from tests.support.gateways import Served, serving
from tests.support.nats_server import NatsServer

KEY, LINE = new_key("ann")
INSPECTOR, HERE = "http://localhost:6274", "localhost:8080"
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
REBOUND = "evil.example"
"""A name that was bound to a loopback address (DNS rebinding)."""
PAGES: list[tuple[str, str, str, tuple[int, int, int]]] = [
    ("/mcp", INSPECTOR, HERE, (200, 200, 401)),
    ("/mcp", INSPECTOR, "127.0.0.1:8080", (200, 200, 401)),
    ("/mcp", "http://127.0.0.1:3000", "LOCALHOST", (200, 200, 401)),
    ("/mcp", "https://[::1]:3000", "[::1]:8080", (200, 200, 401)),
    ("/mcp", FOREIGN, HERE, (403, 403, 403)),
    ("/mcp", "null", HERE, (403, 403, 403)),
    ("/mcp", "file://localhost", HERE, (403, 403, 403)),
    ("/mcp", "http://localhost.evil.example", HERE, (403, 403, 403)),
    ("/mcp", "http://localhost:80@evil.example", HERE, (403, 403, 403)),
    ("/mcp", "http://192.168.0.7:6274", HERE, (403, 403, 403)),
    ("/mcp", INSPECTOR, REBOUND, (403, 403, 403)),
    ("/mcp", f"http://{REBOUND}", REBOUND, (403, 200, 401)),
    ("/mcp/", INSPECTOR, HERE, (403, 403, 403)),
    ("/v1/runs", INSPECTOR, HERE, (403, 403, 403)),
]
"""Path, `Origin` and `Host`; the status of a gateway without keys, of one with keys for its key, and without it."""


async def test_which_pages_speak_mcp(shared_nats: NatsServer) -> None:
    """Those that may are told so before they send anything, also where the key is wrong."""
    async with serving(shared_nats.url) as open_, serving(shared_nats.url, api_keys=LINE) as keyed:
        for path, origin, host, statuses in PAGES:
            headers = {"Origin": origin, "Host": host, "Accept": "application/json"}
            given: list[tuple[Served, dict[str, str]]]
            given = [(open_, {}), (keyed, {"Authorization": f"Bearer {KEY}"}), (keyed, {})]
            for (served, key), status in zip(given, statuses, strict=True):
                message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HELLO}
                answer = await served.http.post(path, json=message, headers={**headers, **key})
                assert answer.status_code == status, (path, origin, host, answer.text)
                if statuses[0] == 200:
                    assert_readable(answer, origin)
                    asked = {**headers, "Access-Control-Request-Method": "POST"}
                    assert (await served.http.options(path, headers=asked)).status_code == 204
                else:
                    assert_hidden(answer)
