"""Which web pages may call the gateway, and the headers of the answers to them."""

import itertools
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from services.gateway.auth.key_lines import new_key
from services.gateway.edge.origins import EXPOSED_HEADERS, METHODS, REQUEST_HEADERS, Origins
from services.gateway.errors import StartRefused
from services.messaging.connection import Bus
from tests.gateway.edge.test_http_connection import HEAD
from tests.support.gateways import ROOT, Served, Writer, connection, serving, unconnected_routes
from tests.support.nats_server import NatsServer
from tests.support.stores import Store

APP, DEV = "https://app.example.org", "http://localhost:5173"
FOREIGN = "https://evil.example"
KEY, LINE = new_key("ann")
BEARER = {"Authorization": f"Bearer {KEY}"}
PREFLIGHT = {"Origin": APP, "Access-Control-Request-Method": "POST"}
SAFELISTED = {"cache-control", "content-language", "content-length", "content-type", "expires", "last-modified"}
"""What a browser shows of any answer (Fetch 3.3.1)."""
FOR_BROWSERS = {
    "access-control-allow-origin",
    "access-control-expose-headers",
    "connection",
    "content-encoding",
    "content-security-policy",
    "cross-origin-resource-policy",
    "date",
    "transfer-encoding",
    "vary",
    "x-accel-buffering",
    "x-content-type-options",
}
"""What browsers and proxies obey, and no page needs."""


@pytest.fixture
async def keyed(shared_nats: NatsServer) -> AsyncIterator[Served]:
    async with serving(shared_nats.url, api_keys=LINE, cors_origins=f"{APP}, {DEV}") as served:
        yield served


def vary_of(answer: httpx.Response) -> set[str]:
    return {name.strip() for name in answer.headers.get("vary", "").split(",")}


def assert_readable(answer: httpx.Response, origin: str = APP) -> None:
    """Assert that a page of the origin may read the answer, and that no cache gives it to another's."""
    assert answer.headers.get_list("access-control-allow-origin") == [origin]
    assert "access-control-allow-credentials" not in answer.headers
    assert answer.headers["access-control-expose-headers"] == ", ".join(EXPOSED_HEADERS)
    assert "Origin" in vary_of(answer)


def assert_hidden(answer: httpx.Response) -> None:
    """Assert that no page may read the answer, and that no cache gives it to one that may read another."""
    assert not any(name.startswith("access-control-") for name in answer.headers)
    assert "Origin" in vary_of(answer)


ANSWERS: list[tuple[str, str, int, dict[str, Any]]] = [
    ("GET", "/", 200, {}),
    ("GET", "/livez", 200, {}),
    ("GET", "/readyz", 200, {}),
    ("GET", "/openapi.json", 200, {}),
    ("GET", "/v1/runs", 200, {}),
    ("POST", "/v1/runs", 202, {"json": {"query": "why?"}}),
    ("GET", "/v1/runs", 401, {"headers": {"Authorization": "Bearer rw_unknown"}}),
    ("POST", "/v1/broken", 500, {}),
    ("GET", "/v1/nothing", 404, {}),
    ("GET", f"/v1/runs/{'0' * 32}", 404, {}),
    ("PUT", "/v1/runs", 405, {}),
    ("OPTIONS", "/v1/runs", 405, {}),
    ("POST", "/v1/runs", 413, {"json": {"query": "x" * (2 << 20)}}),
    ("POST", "/v1/runs", 422, {"json": {"question": "why?"}}),
    ("POST", "/chat", 422, {"content": b"["}),
]


async def test_a_listed_origin_reads_every_answer(keyed: Served) -> None:
    """Errors too: its page must be able to say what is wrong, and may read every header that is meant for it."""

    def broken() -> None:
        raise RuntimeError("a mistake")

    keyed.server._http.add_api_route("/v1/broken", broken, methods=["POST"])  # type: ignore[attr-defined]
    for (method, path, status, sent), origin in itertools.product(ANSWERS, (APP, DEV)):
        headers = {**BEARER, "Origin": origin, **sent.get("headers", {})}
        answer = await keyed.http.request(method, path, **{**sent, "headers": headers})
        assert answer.status_code == status, (method, path)
        assert_readable(answer, origin)
        assert_nothing_is_forgotten(answer)


async def test_a_page_reads_how_long_to_wait(shared_nats: NatsServer, bus: Bus) -> None:
    """Whether its tenant or the gateway is at a limit."""
    writer = Writer(bus)
    await writer.open()
    events = f"/v1/runs/{writer.run}/events"
    for limits, status in (({"max_streams_per_tenant": 1}, 429), ({"max_streams": 1}, 503)):
        async with (
            serving(shared_nats.url, cors_origins=APP, **limits) as served,
            served.http.stream("GET", events, headers={"Origin": APP}) as stream,
        ):
            assert_readable(stream)
            assert stream.headers["runwire-run"] == writer.run
            answer = await served.http.get(events, headers={"Origin": APP})
            assert (answer.status_code, answer.headers["retry-after"].isdigit()) == (status, True)
            assert_readable(answer)


async def test_an_answer_without_an_origin_depends_on_it(keyed: Served) -> None:
    """A cache must not give it to a page."""
    for path in ("/", "/readyz", "/openapi.json", "/v1/runs", "/v1/nothing"):
        assert_hidden(await keyed.http.get(path, headers=BEARER))


async def test_a_foreign_origin_is_refused(keyed: Served, served: Served) -> None:
    """Before the key is asked for, by a sentence that names the setting; also two origins, and without keys."""
    names = (FOREIGN, "null", "", f"{APP}.evil.example", f"{APP}:8443", APP.replace("https", "http"), APP.upper())
    paths = ("/", "/readyz", "/openapi.json", "/v1/runs", "/chat", "/v1/nothing")
    for origins, path, method in itertools.product([(APP, APP), *zip(names)], paths, ("GET", "POST", "OPTIONS")):
        headers = [*(("Origin", origin) for origin in origins), ("Access-Control-Request-Method", "POST")]
        answer = await keyed.http.request(method, path, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), origins
        assert "RUNWIRE_CORS_ORIGINS" in answer.json()["detail"]
        assert_hidden(answer)
    without_preflight = {"Origin": FOREIGN, "Content-Type": "text/plain"}
    answer = await served.http.post("/v1/runs", content=b'{"query": "x"}', headers=without_preflight)
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


async def test_a_listed_page_may_call_a_gateway_without_keys(shared_nats: NatsServer) -> None:
    """A development server on the same machine. The name of the host still has to be a loopback name."""
    async with serving(shared_nats.url, cors_origins=DEV) as served:
        assert_readable(await served.http.get("/v1/runs", headers={"Origin": DEV}), DEV)
        answer = await served.http.get("/v1/runs", headers={"Origin": DEV, "Host": "evil.example"})
        assert answer.status_code == 403
        assert "loopback" in answer.json()["detail"]


OWN: list[tuple[dict[str, str], bool]] = [
    ({"Host": "localhost:8080", "Origin": "http://localhost:8080"}, True),
    ({"Host": "LOCALHOST:8080", "Origin": "http://localhost:8080"}, True),
    ({"Host": "127.0.0.1:8080", "Origin": "https://agents.example.org", "Sec-Fetch-Site": "same-origin"}, True),
    ({"Host": "localhost:8080", "Origin": "http://localhost:8080", "Sec-Fetch-Site": "cross-site"}, False),
    ({"Host": "localhost:8080", "Origin": "http://localhost:3000", "Sec-Fetch-Site": "same-site"}, False),
    ({"Host": "localhost:8080", "Origin": "http://localhost:3000"}, False),
    ({"Host": "localhost:8080", "Origin": "http://127.0.0.1:8080"}, False),
    ({"Host": "localhost:8080", "Origin": "localhost:8080"}, False),
    ({"Host": "localhost:8080", "Origin": "evil://localhost:8080"}, False),
    ({"Host": "localhost:8080", "Origin": "http://localhost:8080/"}, False),
    ({"Host": "localhost:8080", "Origin": "http://localhost:8080.evil.example"}, False),
    ({"Host": "localhost", "Origin": "http://localhost:80"}, False),
    ({"Host": "[::1]:8080", "Origin": "http://[::1]:8080"}, True),
    ({"Host": "localhost:8080", "Origin": "http://["}, False),
    ({"Host": "localhost:8080", "Origin": FOREIGN, "X-Forwarded-Host": "evil.example"}, False),
]
"""What a browser says, and whether it names the gateway itself."""


async def test_what_the_own_origin_is(served: Served) -> None:
    """What the browser says, else the host that it has asked. It needs no headers to read the answer."""
    for headers, is_own in OWN:
        answer = await served.http.get("/v1/runs", headers=headers)
        assert answer.status_code == (200 if is_own else 403), headers
        assert_hidden(answer)


async def test_a_preflight_needs_no_key(keyed: Served) -> None:
    """Browsers send none with it. Every method and header that the interface has is allowed, for two hours."""
    answer = await keyed.http.options("/v1/runs", headers=PREFLIGHT)
    assert (answer.status_code, answer.content) == (204, b"")
    assert_readable(answer)
    assert answer.headers["access-control-max-age"] == "7200"
    allowed = answer.headers["access-control-allow-headers"].split(", ")
    assert {"Authorization", "Content-Type", "Accept", "Last-Event-ID", "Idempotency-Key"} <= set(allowed)
    methods = {method for route in unconnected_routes() for method in route.methods or ()}
    assert set(answer.headers["access-control-allow-methods"].split(", ")) == methods == set(METHODS)


@pytest.mark.parametrize("method", ["OPTIONS", "POST"])
async def test_what_is_no_preflight_needs_a_key(keyed: Served, method: str) -> None:
    """A preflight is OPTIONS, with an origin and the method that will follow."""
    headers = {"OPTIONS": {"Origin": APP}, "POST": PREFLIGHT}[method]
    answer = await keyed.http.request(method, "/chat", headers=headers, json={"query": "why?"})
    assert answer.status_code == {"OPTIONS": 405, "POST": 401}[method]
    assert_readable(answer)


async def test_an_artifact_is_readable(shared_nats: NatsServer, store: Store) -> None:
    """Whole, in part, and when the page has it already. Its own `Vary` stays."""
    assert store.tenant == "default"
    async with serving(shared_nats.url, cors_origins=DEV) as served:
        origin = {"Origin": DEV}
        stored = await served.http.post("/v1/artifacts", content=b"12345678", headers=origin)
        assert_readable(stored, DEV)
        url = stored.headers["location"]
        tag = (await served.http.get(url)).headers["etag"]
        for extra, status in (({}, 200), ({"Range": "bytes=2-3"}, 206), ({"Range": "bytes=9-"}, 416)):
            answer = await served.http.get(url, headers={**origin, **extra})
            assert answer.status_code == status
            assert_readable(answer, DEV)
            assert status == 416 or vary_of(answer) == {"Origin", "Accept-Encoding"}
            assert_nothing_is_forgotten(answer)
        answer = await served.http.get(url, headers={**origin, "If-None-Match": tag})
        assert answer.status_code == 304
        assert_readable(answer, DEV)


def assert_nothing_is_forgotten(answer: httpx.Response) -> None:
    """Assert that a page may read every header that is meant for it."""
    shown = {name.lower() for name in EXPOSED_HEADERS} | SAFELISTED
    assert set(answer.headers) <= shown | FOR_BROWSERS


def test_pages_may_send_every_header_that_is_read() -> None:
    """The sources of the gateway name them."""
    set_by_browsers = {"accept-encoding", "content-length", "host", "origin"}
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "services" / "gateway").rglob("*.py")]
    read = {name for text in sources for name in re.findall(r'headers\.get\(\s*"([\w-]+)"', text)}
    read |= {"last-event-id", "idempotency-key"}
    assert read - set_by_browsers <= {name.lower() for name in REQUEST_HEADERS}
    assert "range" in read


UNREADABLE = [
    (b"POST /v1/runs", b"X: " + b"x" * (90 << 10), 400),
    (b"POST /v1/runs", b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
    (b"POST /v1/runs", b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    (b"GET /v1/runs", HEAD + b"\r\n", 400),
    (b"CONNECT 127.0.0.1:1", b"\r\n", 400),
    (b"GET /v1/runs", b"X: is never com", 408),
]
"""The first line of a request, the rest of it, and the status that it gets."""


async def test_problems_of_a_connection_are_readable(shared_nats: NatsServer) -> None:
    """They are written before any route is known."""
    async with serving(shared_nats.url, api_keys=LINE, cors_origins=APP, request_head_s=0.3) as served:
        for (first_line, rest, status), origin in itertools.product(UNREADABLE, (APP, FOREIGN)):
            sent = first_line + b" HTTP/1.1\r\n" + HEAD + b"Origin: " + origin.encode() + b"\r\n" + rest
            async with connection(served, sent) as (reader, _):
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            assert head.startswith(f"http/1.1 {status}"), sent
            assert "\r\nvary: origin\r\n" in head
            assert (f"\r\naccess-control-allow-origin: {APP}\r\n" in head) == (origin == APP)


@pytest.mark.parametrize(
    ("setting", "remedy"),
    [
        ("*", "name each origin in full"),
        ("https://*.example.org", "name each origin in full"),
        ("null", "serve the page over HTTP"),
        ("Null", "serve the page over HTTP"),
        (f"{APP}/", f"write {APP}."),
        (f"{APP}/chat?x=1#y", f"write {APP}."),
        (f"{APP},{DEV}/", f"write {DEV}."),
        ("https://App.Example.org", f"write {APP}."),
        ("HTTPS://app.example.org", f"write {APP}."),
        ("https://app.example.org:443", f"write {APP}."),
        ("http://localhost:80", "write http://localhost."),
        ("https://ann:secret@app.example.org", f"write {APP}."),
        ("https://bücher.example", "write https://xn--bcher-kva.example."),
        ("https://faß.example", "write scheme, host and port"),
        ("http://[0:0:0:0:0:0:0:1]:3000", "write http://[::1]:3000."),
        ("http://[::FFFF:127.0.0.1]", "write http://[::ffff:7f00:1]."),
        ("http://[::1]:03000", "write http://[::1]:3000."),
        ("http://127.1:3000", "write scheme, host and port"),
        ("http://0x7f000001", "write scheme, host and port"),
        ("app.example.org", f"write {APP}, or http://app.example.org."),
        ("localhost:5173", "write https://localhost:5173, or http://localhost:5173."),
        ("https://", "write scheme, host and port"),
        ("https://app.example.org:99999", "write scheme, host and port"),
        ("https://app example", "write scheme, host and port"),
        (f"{APP} {DEV}", "write scheme, host and port"),
        (f'["{APP}"]', "write scheme, host and port"),
        ("ftp://app.example.org", "write scheme, host and port"),
        ("file:///tmp/page.html", "write scheme, host and port"),
        ("https://app.example.org\r\nx: y", "write scheme, host and port"),
    ],
)
def test_what_is_no_exact_origin_stops_the_start(setting: str, remedy: str) -> None:
    """One sentence names the value and the remedy, and no password."""
    with pytest.raises(StartRefused) as refusal:
        Origins(setting)
    sentence = str(refusal.value)
    assert sentence.startswith("RUNWIRE_CORS_ORIGINS names '")
    assert remedy in sentence
    assert "secret" not in sentence
    assert "\n" not in sentence


def test_exact_origins_are_taken() -> None:
    """With spaces around them, and none at all."""
    by_address = ("http://127.0.0.1:3000", "http://[::1]:3000")
    for origin in (APP, DEV, *by_address, "https://a_b.example", "http://intranet", "https://xn--bcher-kva.example"):
        headers = Origins(f" {origin} ,, {APP}").answer_headers(b"/", [(b"origin", origin.encode())])
        assert (b"access-control-allow-origin", origin.encode()) in headers
    assert Origins("").answer_headers(b"/", [(b"origin", b"")]) == [(b"vary", b"Origin")]
