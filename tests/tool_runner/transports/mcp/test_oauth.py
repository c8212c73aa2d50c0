"""Client credentials: whom the secret is shown to, when a token is replaced, and what is said when there is none."""

import base64
import json
import logging
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import pytest

from contracts.wire.names import new_id
from services.tool_runner.transports.mcp.config import McpServer
from services.tool_runner.transports.mcp.oauth import NoToken, Tokens
from tests.tool_runner.conftest import Planner, Start, fault_of

SECRET = "s3cret/?"
METADATA = "/.well-known/openid-configuration"
FORM = "gave no answer of the expected form"
LOGIN = "Basic " + base64.b64encode(b"me:s3cret%2F%3F").decode()


class Authority:
    """An authorization server, and at `/mcp` a server of tools that takes the newest token alone."""

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []
        """What each request for a token had."""
        self.newest = "none"
        self.answers: dict[str, Any] = {}
        """In the place of those that are right: path -> status, headers, body."""
        authority = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                metadata = {"issuer": authority.url, "token_endpoint": f"{authority.url}/token"}
                is_known = self.path == METADATA
                self.reply(*((200, {}, metadata) if is_known else (404, {}, {})))

            def do_DELETE(self) -> None:
                self.reply(405, {}, {})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                if self.path == "/mcp":
                    return self.reply(*authority.served(self.headers["Authorization"], json.loads(body)))
                authority.asked.append(
                    dict(httpx2.QueryParams(body)) | {"login": self.headers["Authorization"] or "", "path": self.path}
                )
                authority.newest = f"token-{len(authority.asked)}"
                token = {"access_token": authority.newest, "token_type": "bearer", "expires_in": 3600}
                return self.reply(200, {}, token)

            def reply(self, status: int, headers: dict[str, str], body: Any) -> None:
                status, headers, body = authority.answers.get(self.path, (status, headers, body))
                sent = body.encode() if isinstance(body, str) else json.dumps(body).encode()
                self.send_response(status)
                fields = {"Content-Type": "application/json", "Content-Length": str(len(sent)), **headers}
                for name, value in fields.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(sent)

            def log_message(self, *_: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def served(self, shown: str, message: dict[str, Any]) -> tuple[int, dict[str, str], Any]:
        if shown != f"Bearer {self.newest}":
            return 401, {"WWW-Authenticate": 'Bearer resource_metadata="http://127.0.0.1:9/x"'}, {}
        results = {
            "initialize": {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s"}},
            "tools/list": {"tools": [{"name": "look"}]},
            "tools/call": {"content": [{"type": "text", "text": "seen"}]},
        }
        if (result := results.get(message["method"])) is not None:
            return 200, {}, {"jsonrpc": "2.0", "id": message["id"], "result": result}
        return (400, {}, {}) if "id" in message else (202, {}, {})

    def server(self, **oauth: Any) -> McpServer:
        """What the file says of it."""
        known = {"client_id": "me", "client_secret": SECRET, "issuer": self.url} | oauth
        fields = {"name": f"o{new_id()[-6:]}", "approval": "never", "url": f"{self.url}/mcp"}
        return McpServer.model_validate(fields | {"oauth": {key: each for key, each in known.items() if each}})


@pytest.fixture
def authority() -> Iterator[Authority]:
    running = Authority()
    with running.http as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.05,))
        thread.start()
        yield running
        http.shutdown()
        thread.join()


@pytest.mark.usefixtures("store")
async def test_a_token_is_kept_until_the_server_refuses_it(
    authority: Authority, planner: Planner, start_runner: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """Then another one is asked for once, and the call is made; the metadata that the server names are not read."""
    caplog.set_level(logging.DEBUG)
    server = authority.server(scope="tools")
    await start_runner(servers=[server])
    for _ in range(2):
        assert (await planner.call(f"{server.prefix}look", {})).observation == "seen"
    expected = {"grant_type": "client_credentials", "scope": "tools", "resource": f"{authority.url}/mcp"}
    assert authority.asked == [{**expected, "login": LOGIN, "path": "/token"}]
    authority.newest = "another"
    calls = [await planner.request(f"{server.prefix}look", {}) for _ in range(4)]
    assert [(await planner.outcome(call)).observation for call in calls] == ["seen"] * 4
    assert len(authority.asked) == 2
    authority.answers["/mcp"] = (401, {}, {})
    assert "HTTP status 401" in fault_of(await planner.call(f"{server.prefix}look", {})).reason
    assert len(authority.asked) == 3
    assert not [word for word in (SECRET, LOGIN, "token-1") if word in caplog.text]


async def test_a_token_is_replaced_before_it_expires(authority: Authority) -> None:
    """One without a time is kept."""
    async with httpx2.AsyncHTTPTransport() as http:
        for life, asked in ((3600, 1), (None, 1), (0, 3)):
            authority.asked.clear()
            authority.answers["/token"] = (200, {}, {"access_token": "t", "expires_in": life})
            tokens = Tokens(authority.server(client_auth="body"), http.handle_async_request)
            assert [await tokens.other_than("") for _ in range(3)] == ["t"] * 3
            assert [each["client_secret"] for each in authority.asked] == [SECRET] * asked


@pytest.mark.parametrize(
    ("path", "answer", "oauth", "reason"),
    [
        ("/token", lambda _: (307, {"Location": "http://127.0.0.1:9/"}, ""), {}, "the HTTP status 307"),
        ("/token", lambda _: (401, {}, {"error": "invalid_client", "more": SECRET}), {}, "status 401 (invalid_client)"),
        ("/token", lambda _: (200, {}, "<html>"), {}, FORM),
        ("/token", lambda _: (200, {}, {"access_token": "t", "token_type": "mac"}), {}, FORM),
        ("/token", lambda _: (200, {}, "x" * 300_000), {}, FORM),
        (METADATA, lambda url: (200, {}, {"issuer": f"{url}/b", "token_endpoint": url}), {},
         "those of another issuer"),
        (METADATA, lambda url: (200, {}, {"issuer": url, "token_endpoint": "ftp://x/"}), {},
         "that is not https"),
        (METADATA, lambda _: (404, {}, {}), {}, "openid-configuration answered with the HTTP"),
        ("", None, {"issuer": "", "token_url": "http://127.0.0.1:9/token"}, "cannot be reached: ConnectError"),
        ("", None, {"client_secret": "${NOT_THERE_29}"}, "the variable NOT_THERE_29 is not set"),
    ],
)  # fmt: skip
async def test_why_there_is_no_token(
    authority: Authority, path: str, answer: Callable[[str], Any], oauth: dict[str, str], reason: str
) -> None:
    """In a sentence without a secret; what redirects is not followed."""
    if path:
        authority.answers[path] = answer(authority.url)
    async with httpx2.AsyncHTTPTransport() as http:
        with pytest.raises(NoToken) as raised:
            await Tokens(authority.server(**oauth), http.handle_async_request).other_than("")
    assert reason in str(raised.value)
    assert SECRET not in str(raised.value)
