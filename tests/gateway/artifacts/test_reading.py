"""Values in place of references, with a real store behind the gateway."""

import asyncio
import gzip
import json
import socket
from typing import Any

from nats.aio.msg import Msg

from contracts.runs.events import Done
from contracts.wire import subjects
from contracts.wire.faults import Fault
from contracts.wire.names import new_id
from runwire.client import Client
from services.messaging.connection import Bus
from services.shared.redaction.stored_values import to_blob
from tests.gateway.artifacts.test_transfers import ref_of
from tests.support.gateways import Served, Writer, assert_unavailable, serving
from tests.support.nats_server import NatsServer
from tests.support.stores import Store
from tests.support.waiting import wait_until

PDF = b"%PDF-1.7\n" + bytes(range(256)) * 100


async def ended(writer: Writer, store: Store, **values: Any) -> None:
    """An ended run whose tool has stored these values."""
    await writer.open()
    found = {}
    for name, value in values.items():
        blob = to_blob(value)
        ref = await store.client.put(
            "default", blob.body, run=writer.run, mime_type=blob.mime_type, json_type=blob.json_type, items=blob.items
        )
        found[name] = ref.model_dump(mode="json", exclude_none=True)
    await writer.log(Done(raw_answer="see", reason="answer_complete", artifacts={"draw": {**found, "small": [1]}}))


async def drawn(served: Served, run: str, **query: str) -> Any:
    """What the tool has made, in the status of its run."""
    status = await served.http.get(f"/v1/runs/{run}", params=query)
    return status.json()["payload"]["artifacts"]["draw"]


async def test_values_up_to_a_mebibyte_stand_in_the_payload(served: Served, store: Store, writer: Writer) -> None:
    """Heavier ones, bytes and what is gone stay references; `artifacts=refs` leaves all of them."""
    chart = {"series": [{"data": [*range(10_000), 10**30 + 1]}]}
    await ended(writer, store, chart=chart, text="x" * 40_000, long=["y" * 1000] * 1100, pdf=PDF)

    values, refs = await drawn(served, writer.run), await drawn(served, writer.run, artifacts="refs")

    assert (values["chart"], values["text"], values["small"]) == (chart, "x" * 40_000, [1])
    assert (values["long"]["items"], values["pdf"]["mime_type"]) == (1100, "application/pdf")
    assert (refs["chart"]["json_type"], refs["small"]) == ("dict", [1])
    for query, expected in (("", values), ("?artifacts=refs", refs)):
        text = (await served.http.get(f"/v1/runs/{writer.run}/events{query}")).text
        assert json.loads(text.rpartition("event: done\ndata: ")[2].splitlines()[0])["artifacts"]["draw"] == expected
    async with Client(served.url) as client:
        ends = [
            [event async for event in follow][-1]
            for follow in (client.follow(writer.run), client.follow(writer.run, artifacts="refs"))
        ]
    assert [end.model_dump()["artifacts"]["draw"]["chart"] for end in ends] == [chart, refs["chart"]]
    await store.client.delete("default", refs["text"]["artifact_id"])
    assert (await drawn(served, writer.run))["text"] == refs["text"]


async def test_values_in_streams_are_bounded_together(served: Served, store: Store, writer: Writer) -> None:
    """Unread values of one client leave less for the others, which get references, until the client disconnects."""
    mib = 1 << 20
    await ended(writer, store, **{name: name * (mib - 10) for name in "abcd"})
    inliner, url = served.parts.inliner, f"/v1/runs/{writer.run}/events"
    limit = inliner.free_bytes = 6 * mib
    # The client's window is small, so that its end waits in the gateway.
    stalled = socket.socket()
    stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    await asyncio.to_thread(stalled.connect, ("127.0.0.1", served.server.port))
    with stalled:
        stalled.sendall(f"GET {url} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        await wait_until(lambda: inliner.free_bytes < 3 * mib, what="the first stream has its values")
        event = (await served.http.get(url)).text.rpartition("event: done\ndata: ")[2].splitlines()[0]
        kinds = [type(value).__name__ for value in json.loads(event)["artifacts"]["draw"].values()]
        assert kinds == ["str", "str", "dict", "dict", "list"]
        assert inliner.free_bytes > 0
    await wait_until(lambda: inliner.free_bytes == limit, what="all room is given back")


async def test_json_is_compressed_on_request(served: Served, store: Store, writer: Writer) -> None:
    """Artifacts and answers; bytes stay as they are."""
    await ended(writer, store, chart={"data": ["same"] * 50_000})
    url = f"/v1/runs/{writer.run}"
    ref = (await drawn(served, writer.run, artifacts="refs"))["chart"]
    for path in (url, f"/v1/artifacts/{ref['artifact_id']}"):
        async with served.http.stream("GET", path, headers={"Accept-Encoding": "gzip"}) as packed:
            raw = b"".join([piece async for piece in packed.aiter_raw()])
        plain = await served.http.get(path, headers={"Accept-Encoding": "identity"})
        assert packed.headers["content-encoding"] == "gzip"
        assert json.loads(gzip.decompress(raw)) == plain.json()
        assert len(raw) < len(plain.content) / 10
    tag = packed.headers["etag"]
    assert (await served.http.get(path, headers={"If-None-Match": tag})).status_code == 304
    assert tag != plain.headers["etag"]


async def test_the_store_is_unavailable(shared_nats: NatsServer, writer: Writer) -> None:
    """503, and soon; a payload is given with its references."""
    async with serving(shared_nats.url, accept_wait_s=0.2) as served:
        assert_unavailable(await served.http.get(f"/v1/artifacts/{new_id()}"))
        await writer.open()
        ref = ref_of(50_000, "application/json", json_type="list", items=3).model_dump(mode="json", exclude_none=True)
        await writer.log(Done(raw_answer="see", reason="answer_complete", artifacts={"draw": {"chart": ref}}))
        assert (await drawn(served, writer.run))["chart"] == ref


async def test_many_artifacts_of_an_unavailable_store_take_no_longer_than_one(
    shared_nats: NatsServer, bus: Bus, writer: Writer
) -> None:
    """The first ones are waited for; the others are not requested."""
    asked: set[str] = set()

    async def hear(message: Msg) -> None:
        asked.add(json.loads(message.data)["artifact_id"])
        await message.respond(down.model_dump_json().encode())

    down = Fault(code="storage_unavailable", reason="down", retryable=True)
    store = await bus.nc.subscribe(subjects.artifact_get(), cb=hear)
    await bus.barrier()
    large = [ref_of(50_000, "application/json", json_type="list").model_dump(mode="json") for _ in range(60)]
    refs = {f"n{number}": ref for number, ref in enumerate(large)}
    await writer.open()
    await writer.log(Done(raw_answer="see", reason="answer_complete", artifacts={"draw": refs}))
    async with serving(shared_nats.url, accept_wait_s=0.2) as served:
        assert set(await drawn(served, writer.run)) == set(refs)
    await store.unsubscribe()
    assert 0 < len(asked) < 20
