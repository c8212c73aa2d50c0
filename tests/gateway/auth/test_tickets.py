"""A ticket opens one event stream without the key, on every gateway, until it ends."""

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest

from contracts.wire.names import new_id
from services.gateway.auth.key_lines import new_key
from services.messaging.connection import Bus
from tests.support.gateways import Served, Writer, bearer, serving
from tests.support.nats_server import NatsServer
from tests.support.session_writer import SessionWriter

KEY, LINE = new_key("tickets")
EVE, EVES_LINE = new_key("tickets", {"user": "eve"})
BEARER = bearer(KEY)


@pytest.fixture
async def keyed(shared_nats: NatsServer) -> AsyncIterator[tuple[Served, Served]]:
    url, keys = shared_nats.url, f"{LINE}, {EVES_LINE}"
    async with serving(url, api_keys=keys) as one, serving(url, api_keys=keys) as other:
        yield one, other


async def ended(bus: Bus) -> Writer:
    """A run that has ended."""
    writer = Writer(bus, "tickets")
    await writer.open()
    await writer.done()
    return writer


async def events_url(served: Served, path: str, **body: int) -> str:
    answer = await served.http.post(f"{path}/ticket", json=body, headers=BEARER)
    assert (answer.status_code, answer.headers["cache-control"]) == (201, "no-store")
    url: str = answer.json()["events_url"]
    return url


async def test_it_opens_its_run_on_every_gateway_as_often_as_one_likes(keyed: tuple[Served, Served], bus: Bus) -> None:
    """And goes on behind an event; 204 at the end, after which a browser comes no more."""
    writer = await ended(bus)
    url = await events_url(keyed[0], f"/v1/runs/{writer.run}")
    whole = [(await served.http.get(url)).text for served in keyed]
    assert whole[0] == whole[1]
    assert "event: run_started" in whole[0]
    assert "event: done" in whole[0]
    ids = [line.removeprefix("id: ") for line in whole[0].splitlines() if line.startswith("id: ")]
    assert "run_started" not in (await keyed[1].http.get(f"{url}&last_event_id={ids[0]}")).text
    assert (await keyed[1].http.get(url, headers={"Last-Event-ID": ids[-1]})).status_code == 204


async def test_it_opens_nothing_else(keyed: tuple[Served, Served], bus: Bus) -> None:
    """No other run, no other route, no session, and not one sign longer than it was made for."""
    served = keyed[0]
    session = SessionWriter(bus, f"a/b {new_id()}", "tickets")
    await session.start()
    runs = [f"/v1/runs/{(await ended(bus)).run}" for _ in range(2)]
    url = await events_url(served, runs[0])
    ticket = url.partition("ticket=")[2]
    said, _, signed = ticket.partition(".")
    altered = (said, f"{said}.", f"{said}.{signed[:-1]}", f"{said}A.{signed}", f"é.{signed}")
    for other in ("", "x", "x.y", "W10.", *altered):
        assert (await served.http.get(f"{runs[0]}/events", params={"ticket": other})).status_code == 401, other
    for path in (runs[1], f"/v1/sessions/{quote(session.session_id, safe='')}"):
        assert (await served.http.get(f"{path}/events?ticket={ticket}")).status_code == 401
    for method, path in (("GET", runs[0]), ("POST", f"{runs[0]}/cancel"), ("POST", f"{runs[0]}/ticket")):
        assert (await served.http.request(method, path, params={"ticket": ticket})).status_code == 401
    assert (await served.http.get(url)).status_code == 200
    assert (await served.http.post(f"{runs[0]}/ticket", headers=bearer(EVE))).status_code == 404
    for seconds in (0, 3601, "60"):
        answer = await served.http.post(f"{runs[0]}/ticket", json={"seconds": seconds}, headers=BEARER)
        assert answer.status_code == 422


async def test_at_its_end_the_stream_says_so_and_closes(keyed: tuple[Served, Served], bus: Bus) -> None:
    """Of a run and of a session; then it opens nothing."""
    session, writer = SessionWriter(bus, f"a/b {new_id()}", "tickets"), Writer(bus, "tickets")
    await session.start()
    await writer.open()
    paths = (f"/v1/runs/{writer.run}", f"/v1/sessions/{quote(session.session_id, safe='')}")
    urls = [await events_url(keyed[0], path, seconds=1) for path in paths]
    for answer in await asyncio.gather(*(keyed[1].http.get(url) for url in urls)):
        assert answer.text.endswith('event: ticket_expired\ndata: {"type":"ticket_expired"}\n\n')
    for url in urls:
        expired = await keyed[1].http.get(url)
        assert (expired.status_code, expired.json()["code"]) == (401, "ticket_expired")


async def test_without_keys_too(served: Served, writer: Writer) -> None:
    """So that a page is written once; the Host must be a loopback name all the same."""
    await writer.open()
    await writer.done()
    url = (await served.http.post(f"/v1/runs/{writer.run}/ticket")).json()["events_url"]
    assert (await served.http.get(url)).status_code == 200
    assert (await served.http.get(url, headers={"Host": "example.org"})).status_code == 403
