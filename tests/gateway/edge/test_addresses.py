"""Behind a proxy every address in an answer is the one that clients reach, and requests to it are answered."""

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from runwire.client import webhook_headers
from services.gateway.settings import GatewaySettings
from tests.support.gateways import ROOT, Served, serving
from tests.support.nats_server import NatsServer

_PUBLIC = "https://agents.example.org/team/agents"
_SHOWN = {
    ("POST /v1/runs", "location"),
    ("POST /v1/runs", "url"),
    ("POST /v1/runs", "events_url"),
    ("POST /v1/runs", "ticket_url"),
    ("POST /v1/runs/{run_id}/ticket", "events_url"),
    ("POST /v1/runs streamed", "location"),
    ("POST /v1/artifacts", "location"),
    ("POST /v1/schedules", "location"),
    ("POST /v1/schedules", "webhook_url"),
    ("GET /v1/schedules", "webhook_url"),
    ("GET /v1/schedules/{schedule_id}", "webhook_url"),
    ("POST /v1/hooks/{schedule_id}", "location"),
    ("POST /v1/hooks/{schedule_id}", "url"),
    ("POST /v1/hooks/{schedule_id}", "events_url"),
    ("POST /v1/hooks/{schedule_id}", "ticket_url"),
}


def addresses(name: str, answer: httpx.Response) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield each address of the gateway in an answer: route and field, and the address."""

    def walk(field: str, value: Any) -> Iterator[tuple[str, str]]:
        for key, each in value.items() if isinstance(value, dict) else ((field, e) for e in value):
            if isinstance(each, dict | list):
                yield from walk(key, each)
            elif isinstance(each, str) and "/v1/" in each:
                yield key, each

    body = answer.json() if answer.headers["content-type"] == "application/json" else {}
    for field, address in walk("", [dict(answer.headers), body]):
        yield (name, field), address


async def every_answer(http: httpx.AsyncClient, headers: dict[str, str]) -> dict[tuple[str, str], list[str]]:
    """Ask each route whose answer shows an address, and return these."""
    found: dict[tuple[str, str], list[str]] = {}

    async def ask(name: str, path: str = "", **given: Any) -> dict[str, Any]:
        method, _, route = name.partition(" ")
        headers_ = {**headers, **given.pop("headers", {})}
        request = http.build_request(method, path or route, headers=headers_, **given)
        answer = await http.send(request, stream=True)
        assert answer.is_success, (name, await answer.aread())
        if "event-stream" not in answer.headers["content-type"]:
            await answer.aread()
        for place, address in addresses(name, answer):
            found.setdefault(place, []).append(address)
        await answer.aclose()
        body: dict[str, Any] = answer.json() if answer.headers["content-type"] == "application/json" else {}
        return body

    run = await ask("POST /v1/runs", json={"query": "hello"})
    await ask("POST /v1/runs/{run_id}/ticket", f"/v1/runs/{run['run_id']}/ticket")
    events = {"Accept": "text/event-stream"}
    await ask("POST /v1/runs streamed", "/v1/runs", json={"query": "hello"}, headers=events)
    await ask("POST /v1/artifacts", content=b"text", headers={"Content-Type": "text/plain"})
    hook = await ask("POST /v1/schedules", json={"webhook": True, "run": {"query": "Judge the alarm."}})
    path = f"/v1/hooks/{hook['schedule_id']}"
    await ask("GET /v1/schedules")
    await ask("GET /v1/schedules/{schedule_id}", f"/v1/schedules/{hook['schedule_id']}")
    signed = webhook_headers(hook["secret"], b"{}")
    await ask("POST /v1/hooks/{schedule_id}", path, content=b"{}", headers=signed)
    return found


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("settings", "headers", "before"),
    [
        ({}, {}, ""),
        ({"public_url": _PUBLIC}, {}, _PUBLIC),
        ({"public_url": f"{_PUBLIC}/"}, {"X-Forwarded-Prefix": "/other"}, _PUBLIC),
        ({}, {"X-Forwarded-Prefix": "/team/agents/"}, "/team/agents"),
        ({}, {"X-Forwarded-Prefix": "https://evil.example"}, ""),
        ({}, {"X-Forwarded-Prefix": "//evil.example"}, ""),
    ],
)
async def test_all_addresses_are_those_that_clients_reach(
    settings: dict[str, Any], headers: dict[str, str], before: str, shared_nats: NatsServer
) -> None:
    """Of every route that shows one, and of no other path than the gateway's."""
    async with serving(shared_nats.url, **settings) as served:
        found = await every_answer(served.http, headers)
        assert found.keys() == _SHOWN
        assert [each for all_ in found.values() for each in all_ if not each.startswith(f"{before}/v1/")] == []
        for path in {httpx.URL(all_[0]).path for (_, field), all_ in found.items() if field in {"url", "location"}}:
            for way in {path, path.removeprefix(httpx.URL(before).path)}:  # Some proxies remove the prefix.
                answer = await served.http.get(way, headers=headers)
                assert (answer.status_code, way) == (200, way)


async def test_every_address_of_the_document_is_looked_at(served: Served) -> None:
    """A field of an answer whose name ends in `url` is one of those above. Sources are of elsewhere."""
    schemas = (await served.http.get("/openapi.json")).json()["components"]["schemas"]
    fields = {
        field
        for name, schema in schemas.items()
        if name != "Source"
        for field in schema.get("properties", {})
        if field.endswith("url")
    }
    assert fields == {field for _, field in _SHOWN} - {"location"}


def test_no_location_is_written_without_the_public_address() -> None:
    """In any module of the gateway."""
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "services" / "gateway").rglob("*.py"))
    found = re.findall(r'"Location"\]?(?::| =) (?:routing\.)?(\w+)', text)
    assert len(found) >= 6
    assert set(found) == {"address_of", "location", "url"}


async def test_the_document_names_the_public_address(shared_nats: NatsServer) -> None:
    """Tools that read it call that one."""
    async with serving(shared_nats.url, public_url=_PUBLIC) as served:
        document = json.loads((await served.http.get("/team/agents/openapi.json")).text)
        assert document["servers"] == [{"url": _PUBLIC}]
        assert (await served.http.get("/team/agents/readyz")).status_code == 200
        assert (await served.http.get("/team/agentsreadyz")).status_code == 404


@pytest.mark.parametrize("wrong", ["agents.example.org", "/agents", "https://x/a?b", "https://x/v1", "https://u:p@x/a"])
def test_what_is_no_public_address_is_refused(wrong: str) -> None:
    """With the remedy."""
    with pytest.raises(ValidationError, match="write scheme, host and path"):
        GatewaySettings(public_url=wrong)
