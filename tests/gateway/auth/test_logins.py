"""A login of the playground: a cookie in place of the key, for the gateway's own page alone."""

from collections.abc import AsyncIterator

import httpx
import pytest

from contracts.wire import keys
from contracts.wire.names import unix_ms
from services.gateway.auth import guard
from services.gateway.auth.key_lines import new_key
from tests.support.gateways import Served, bearer, serving
from tests.support.nats_server import NatsServer

OPTIONS = {"name": "desk", "rights": "run,approve", "user": "eve", "agents": "default", "tools": "a,b"}
KEY, LINE = new_key("ann", OPTIONS)
OTHER, OTHERS_LINE = new_key("ann", {"name": "desk"})
OWN = {"Sec-Fetch-Site": "same-origin"}
LISTED = "http://localhost:5173"


@pytest.fixture
async def keyed(shared_nats: NatsServer) -> AsyncIterator[Served]:
    """A gateway with one key, which a page of another origin may call."""
    async with serving(shared_nats.url, api_keys=LINE, cors_origins=LISTED) as served:
        yield served


def page_of(served: Served) -> dict[str, str]:
    """The headers with which a browser writes from the gateway's own page."""
    return {**OWN, "Origin": str(served.http.base_url).rstrip("/")}


async def signed_in(served: Served, origin: str = "") -> httpx.Response:
    headers = {**page_of(served), **bearer(KEY), **({"Origin": origin} if origin else {})}
    answer = await served.http.post("/v1/login", headers=headers)
    assert answer.status_code == 200, answer.text
    return answer


async def test_a_cookie_stands_for_the_key(keyed: Served) -> None:
    """The page cannot read it, other pages cannot send it, and it holds nothing of the key."""
    answer = await signed_in(keyed)
    value, *settings = answer.headers["set-cookie"].split("; ")
    assert set(settings) == {"HttpOnly", "SameSite=strict", "Path=/", f"Max-Age={guard.LOGIN_S}"}
    assert answer.headers["cache-control"] == "no-store"
    assert KEY not in value
    said = (await keyed.http.get("/v1/login", headers=OWN)).json()
    assert said.pop("ends_at") > unix_ms()
    assert said == {
        "tenant": "ann",
        "key_id": "desk",
        "rights": ["approve", "run"],
        "user_id": "eve",
        "role": "user",
        "tools": ["a", "b"],
        "agents": ["default"],
    }
    started = await keyed.http.post("/v1/runs", json={"query": "x"}, headers=page_of(keyed))
    assert started.status_code == 202
    assert (await keyed.http.post("/v1/login", headers=page_of(keyed))).status_code == 401, "it prolongs itself"
    secure = (await signed_in(keyed, "https://agents.example.org")).headers["set-cookie"]
    assert "Secure" in secure


FORGED = [
    ({"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}, 403),
    ({"Origin": "http://localhost:3000", "Sec-Fetch-Site": "same-site"}, 403),
    ({"Origin": LISTED, "Sec-Fetch-Site": "same-site"}, 401),
    ({"Origin": LISTED}, 401),
    ({"Origin": "null"}, 403),
    ({}, 401),
    ({"Sec-Fetch-Site": "same-origin"}, 401),
    ({"Sec-Fetch-Site": "none"}, 401),
    ({"Sec-Fetch-Site": "cross-site"}, 401),
]
"""What a page elsewhere, a form, a link and a program may send beside the cookie."""


async def test_no_other_page_writes_or_reads_with_it(keyed: Served) -> None:
    """Even if a browser sent it: not a page, a form, or one that may call the gateway with a key of its own.

    A person who types an address reads.
    """
    await signed_in(keyed)
    for headers, status in FORGED:
        for method, path in (("POST", "/v1/runs"), ("DELETE", "/v1/login"), ("PUT", "/v1/sessions/x/context")):
            answer = await keyed.http.request(method, path, json={"query": "x"}, headers=headers)
            assert answer.status_code == status, headers
    assert (await keyed.http.get("/v1/login", headers=OWN)).status_code == 200
    for header in ({"Origin": LISTED}, {"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": "cross-site"}):
        assert (await keyed.http.get("/v1/runs", headers=header)).status_code == 401, header
    for header in ({"Sec-Fetch-Site": "none"}, {}):
        assert (await keyed.http.get("/v1/runs", headers=header)).status_code == 200, header


async def test_it_ends(shared_nats: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its key, also if another one has its name by then; when somebody signs out; and after its time."""
    async with serving(shared_nats.url, api_keys=LINE) as one, serving(shared_nats.url, api_keys=OTHERS_LINE) as other:
        cookie = (await signed_in(one)).cookies[guard.COOKIE]
        shown = {**OWN, "Cookie": f"{guard.COOKIE}={cookie}"}
        assert (await other.http.get("/v1/login", headers=shown)).status_code == 401
        assert (await one.http.get("/v1/login", headers={**shown, "Authorization": "Bearer x"})).status_code == 401
        out = await one.http.delete("/v1/login", headers=page_of(one))
        assert (out.status_code, "Max-Age=0" in out.headers["set-cookie"]) == (204, True)
        assert (await one.http.get("/v1/login", headers=shown)).status_code == 401
        monkeypatch.setattr(guard, "unix_ms", lambda: 0)
        await signed_in(one)
        monkeypatch.undo()
        assert (await one.http.get("/v1/login", headers=OWN)).status_code == 401
        for forged in ("", "x", cookie[:-1], "é"):
            raw = [(b"Cookie", f"{guard.COOKIE}={forged}".encode())]
            assert (await one.http.get("/v1/login", headers=raw)).status_code == 401
        stored = await one.parts.entries.get(keys.login_key(cookie))
        assert not stored.data


async def test_without_keys_nobody_signs_in(served: Served) -> None:
    """The page asks, and is told what everybody may do."""
    said = (await served.http.get("/v1/login")).json()
    assert (said["key_id"], len(said["rights"])) == ("", 4)
    assert (await served.http.post("/v1/login")).status_code == 403
