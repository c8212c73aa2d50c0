"""Artifacts over HTTP, with a real store behind the gateway."""

import asyncio
import gzip
import hashlib
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from nats.aio.msg import Msg

from contracts import subjects
from contracts.artifacts import ArtifactRef
from contracts.events import Done
from contracts.faults import Fault
from contracts.ids import new_id
from runwire.client import Client
from runwire.errors import NotFound
from services.gateway.artifacts.downloads import headers_of, range_of
from services.gateway.auth import new_key
from services.gateway.compression import accepts_gzip
from services.gateway.errors import RangeNotSatisfiable
from services.messaging.connection import Bus
from services.shared.redaction import to_blob
from tests.support.gateways import Served, Writer, serving
from tests.support.nats_server import NatsServer
from tests.support.stores import Store
from tests.support.waiting import wait_until

PDF = b"%PDF-1.7\n" + bytes(range(256)) * 100
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 50


def ref_of(size: int, mime_type: str = "application/pdf", **more: Any) -> ArtifactRef:
    """A reference to bytes that nobody has."""
    return ArtifactRef(artifact_id=new_id(), mime_type=mime_type, size=size, sha256="0" * 64, **more)


async def upload(http: httpx.AsyncClient, body: bytes, mime_type: str | None = None, **query: str) -> ArtifactRef:
    """Keep a file."""
    answer = await http.post(
        "/v1/artifacts", content=body, params=query, headers={"Content-Type": mime_type} if mime_type else {}
    )
    assert answer.status_code == 201, answer.text
    return ArtifactRef.model_validate_json(answer.content)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("bytes=0-0", (0, 1)),
        ("bytes=5-", (5, 5)),
        ("Bytes=5-6", (5, 2)),
        ("bytes=-3", (7, 3)),
        ("bytes=-30", (0, 10)),
        ("bytes=2-99", (2, 8)),
        ("bytes=9-3", None),
        ("bytes=0-1,4-5", None),
        ("lines=0-1", None),
        ("bytes=-", None),
        ("", None),
    ],
)
def test_what_range_is_meant(asked: str, found: tuple[int, int] | None) -> None:
    """A form that is not served counts as none."""
    part = range_of({"range": asked}, ref_of(10))
    assert (None if part is None else (part.offset, part.length)) == found


@pytest.mark.parametrize("asked", ["bytes=10-", "bytes=10-20", "bytes=-0"])
def test_a_range_beyond_the_end(asked: str) -> None:
    """Says how long the artifact is."""
    with pytest.raises(RangeNotSatisfiable) as caught:
        range_of({"range": asked}, ref_of(10))
    assert caught.value.headers == {"Content-Range": "bytes */10"}


def test_a_range_of_something_else_is_all() -> None:
    """`If-Range` of another artifact."""
    assert range_of({"range": "bytes=0-1", "if-range": '"other"'}, ref_of(10)) is None


@pytest.mark.parametrize(
    ("accepted", "taken"),
    [
        ("gzip", True),
        ("GZIP", True),
        ("br, gzip;q=0.5", True),
        ("*", True),
        ("*;q=0, gzip", True),
        ("gzip;q=0", False),
        ("gzip; q=0.0", False),
        ("gzip;q=0, *", False),
        ("identity", False),
        ("", False),
    ],
)
def test_who_accepts_gzip(accepted: str, *, taken: bool) -> None:
    """As the header says."""
    assert accepts_gzip({"accept-encoding": accepted}) is taken


@pytest.mark.parametrize(
    ("ref", "disposition"),
    [
        (ref_of(1, "image/png", filename="a.png"), "inline; filename=\"a.png\"; filename*=UTF-8''a.png"),
        (ref_of(1, "image/svg+xml", filename="a.svg"), "attachment; filename=\"a.svg\"; filename*=UTF-8''a.svg"),
        (
            ref_of(1, "text/html", filename='ü";\r\n.html'),
            "attachment; filename=\"___;__.html\"; filename*=UTF-8''%C3%BC%22%3B%0D%0A.html",
        ),
    ],
)
def test_nothing_but_a_raster_image_is_shown_in_place(ref: ArtifactRef, disposition: str) -> None:
    """And a file's name cannot break out of its header."""
    headers = headers_of(ref)
    assert headers["Content-Disposition"].replace("____;", "___;") in {disposition, disposition.replace("___;", "__;")}
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in headers["Content-Security-Policy"]


@pytest.mark.usefixtures("store")
async def test_a_file_comes_back_byte_for_byte(served: Served) -> None:
    """As a whole, in ranges, not at all when it is known; with the type that its bytes have."""
    ref = await upload(served.http, PDF, filename="report.pdf", session_id="s")
    assert (ref.mime_type, ref.filename, ref.sha256) == (
        "application/pdf",
        "report.pdf",
        hashlib.sha256(PDF).hexdigest(),
    )
    url = f"/v1/artifacts/{ref.artifact_id}"

    whole = await served.http.get(url)
    part = await served.http.get(url, headers={"Range": "bytes=100-299"})
    known = await served.http.get(url, headers={"If-None-Match": whole.headers["etag"]})
    head = await served.http.head(url)
    beyond = await served.http.get(url, headers={"Range": f"bytes={len(PDF)}-"})

    assert (whole.status_code, whole.content, whole.headers["content-type"]) == (200, PDF, "application/pdf")
    assert whole.headers["content-disposition"].startswith("attachment")
    assert (part.status_code, part.content) == (206, PDF[100:300])
    assert part.headers["content-range"] == f"bytes 100-299/{len(PDF)}"
    assert (known.status_code, known.content) == (304, b"")
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", str(len(PDF)))
    assert (beyond.status_code, beyond.json()["code"]) == (416, "range_not_satisfiable")


@pytest.mark.usefixtures("store")
async def test_a_large_file_passes_in_chunks(served: Served) -> None:
    """Through upload and download."""
    body = bytes(range(256)) * (4096 * 5 + 3)
    ref = await upload(served.http, body)
    assert (await served.http.get(f"/v1/artifacts/{ref.artifact_id}")).content == body


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("kind", ["application/json", "application/geo+json; charset=utf-8"])
async def test_who_has_the_compressed_bytes_is_told_so(served: Served, kind: str) -> None:
    """The tag of an answer without a body is that of the bytes that the caller has, so that caches find them."""
    ref = await upload(served.http, json.dumps(["x"] * 2000).encode(), kind)
    url = f"/v1/artifacts/{ref.artifact_id}"
    for accepted in ("gzip", "identity"):
        whole = await served.http.get(url, headers={"Accept-Encoding": accepted})
        known = await served.http.get(
            url, headers={"Accept-Encoding": accepted, "If-None-Match": whole.headers["etag"]}
        )
        assert whole.headers.get("content-encoding", "identity") == accepted
        assert (known.status_code, known.headers["etag"]) == (304, whole.headers["etag"])


class Torn(httpx.AsyncBaseTransport):
    """A connection that breaks after some bytes of every answer, `times` times."""

    def __init__(self, inner: httpx.AsyncBaseTransport, times: int) -> None:
        self._inner = inner
        self.times = times

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer, and tear."""
        answer = await self._inner.handle_async_request(request)
        if self.times and request.method == "GET":
            self.times -= 1
            answer.stream = TornBody(answer.stream)
        return answer

    async def aclose(self) -> None:
        """Close what is behind it."""
        await self._inner.aclose()


class TornBody(httpx.AsyncByteStream):
    """The beginning of a body."""

    def __init__(self, body: Any) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._body:
            yield piece[:1000]
            raise httpx.ReadError("as the test wants it")

    async def aclose(self) -> None:
        """Drop the rest."""
        await self._body.aclose()


@pytest.mark.usefixtures("store")
async def test_the_client_fetches_over_broken_connections(served: Served) -> None:
    """It goes on where it was; and says so when there is nothing."""
    body = bytes(range(256)) * 8000
    ref = await upload(served.http, body)
    async with Client(served.url, patience_s=10) as client:
        client._http._transport = Torn(client._http._transport, 3)
        assert b"".join([piece async for piece in client.fetch(ref.artifact_id)]) == body
        with pytest.raises(NotFound):
            await anext(client.fetch(new_id()))


@pytest.mark.usefixtures("store")
async def test_a_form_brings_a_file(served: Served) -> None:
    """Its name and type come with it; a form without one is refused, and so is one that says more."""
    answer = await served.http.post("/v1/artifacts", files={"file": ("dot.png", PNG, "image/png")})
    assert (answer.status_code, answer.json()["filename"], answer.json()["mime_type"]) == (201, "dot.png", "image/png")
    shown = await served.http.get(answer.headers["location"])
    assert (shown.content, shown.headers["content-disposition"][:6]) == (PNG, "inline")
    without = await served.http.post("/v1/artifacts", files={"note": (None, b"x")})
    assert (without.status_code, without.json()["errors"][0]["field"]) == (422, "file")
    for field, said in (("session_id", "/v1/artifacts?session_id="), ("note", "nothing else")):
        astray = await served.http.post(
            "/v1/artifacts", files={"file": ("dot.png", PNG, "image/png")}, data={field: "s"}
        )
        assert (astray.status_code, astray.json()["errors"][0]["field"]) == (422, field)
        assert said in astray.json()["errors"][0]["message"]
    form = b'--B\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nx\r\n--B--\r\n'
    headers = {"Content-Type": "multipart/form-data; boundary=B; charset=undefined"}
    unread = await served.http.post("/v1/artifacts", content=form, headers=headers)
    assert (unread.status_code, unread.json()["code"]) == (422, "invalid_input")


@pytest.mark.usefixtures("store")
async def test_what_is_not_taken(shared_nats: NatsServer) -> None:
    """Bytes that are not what they are called, and too many of them."""
    async with serving(shared_nats.url, max_upload_bytes=100_000) as served:
        wrong = await served.http.post("/v1/artifacts", content=b"no picture", headers={"Content-Type": "image/png"})

        async def many() -> AsyncIterator[bytes]:
            for _ in range(11):
                yield b"x" * 10_000

        long = await served.http.post("/v1/artifacts", content=many())
        announced = await served.http.post("/v1/artifacts", content=b"x" * 100_001)
    assert (wrong.status_code, long.status_code, announced.status_code) == (422, 413, 413)


async def test_lists_and_forgetting(served: Served, store: Store, writer: Writer) -> None:
    """Of a session in pages; of a run; and 404 afterwards."""
    session = new_id()
    refs = [await upload(served.http, b"%d" % number, session_id=session) for number in range(3)]
    await writer.open(session_id=session)
    own = await store.client.put("default", b"own", session=session, run=writer.run)

    first = (await served.http.get("/v1/artifacts", params={"session_id": session, "limit": 2})).json()
    rest = (
        await served.http.get("/v1/artifacts", params={"session_id": session, "cursor": first["next_cursor"]})
    ).json()
    of_run = (await served.http.get(f"/v1/runs/{writer.run}/artifacts")).json()
    listed = [each["ref"]["artifact_id"] for each in first["artifacts"] + rest["artifacts"]]
    assert listed == [ref.artifact_id for ref in [*refs, own]]
    assert [each["ref"]["artifact_id"] for each in of_run["artifacts"]] == [own.artifact_id]
    assert (await served.http.get(f"/v1/runs/{new_id()}/artifacts")).status_code == 404

    url = f"/v1/artifacts/{refs[0].artifact_id}"
    assert (await served.http.delete(url)).status_code == 204
    assert (await served.http.delete(url)).status_code == 404
    assert (await served.http.get(url)).status_code == 404


@pytest.mark.usefixtures("store")
async def test_somebody_elses_does_not_exist(shared_nats: NatsServer) -> None:
    """The same bytes as for an unknown one, and for what is no id at all."""
    keys = [new_key(tenant) for tenant in ("acme", "other")]
    async with serving(shared_nats.url, api_keys=",".join(line for _, line in keys)) as served:
        acme, other = ({"Authorization": f"Bearer {key}"} for key, _ in keys)
        ref = ArtifactRef.model_validate_json(
            (await served.http.post("/v1/artifacts", content=PDF, headers=acme)).content
        )
        mine = await served.http.get(f"/v1/artifacts/{ref.artifact_id}", headers=acme)
        answers = [
            await served.http.get(f"/v1/artifacts/{name}", headers=other)
            for name in (ref.artifact_id, new_id(), "../x", "no-id")
        ]
        gone = await served.http.delete(f"/v1/artifacts/{ref.artifact_id}", headers=other)
        nobody = await served.http.get(f"/v1/artifacts/{ref.artifact_id}")
    assert (mine.content, nobody.status_code) == (PDF, 401)
    assert {(answer.status_code, answer.content) for answer in [*answers, gone]} == {(404, answers[0].content)}


async def ended(writer: Writer, store: Store, **values: Any) -> None:
    """A run whose tool has put these values away."""
    await writer.open()
    found = {}
    for name, value in values.items():
        blob = to_blob(value)
        ref = await store.client.put(
            "default", blob.body, run=writer.run, mime_type=blob.mime_type, json_type=blob.json_type, items=blob.items
        )
        found[name] = ref.model_dump(mode="json", exclude_none=True)
    await writer.log(Done(raw_answer="see", reason="answer_complete", artifacts={"draw": {**found, "small": [1]}}))


async def test_values_up_to_a_mebibyte_stand_in_the_payload(served: Served, store: Store, writer: Writer) -> None:
    """Heavier ones, bytes and what is gone stay references; `artifacts=refs` leaves all of them."""
    chart = {"series": [{"data": list(range(10_000))}]}
    await ended(writer, store, chart=chart, text="x" * 40_000, long=["y" * 1000] * 1100, pdf=PDF)

    values = (await served.http.get(f"/v1/runs/{writer.run}")).json()["payload"]["artifacts"]["draw"]
    refs = (await served.http.get(f"/v1/runs/{writer.run}", params={"artifacts": "refs"})).json()["payload"][
        "artifacts"
    ]["draw"]

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
    again = (await served.http.get(f"/v1/runs/{writer.run}")).json()["payload"]["artifacts"]["draw"]
    assert again["text"] == refs["text"]


async def test_values_in_streams_are_bounded_together(served: Served, store: Store, writer: Writer) -> None:
    """What one client has not read leaves less for the others, who get references; it is given back once the client has gone."""
    mib = 1 << 20
    await ended(writer, store, **{name: name * (mib - 10) for name in "abcd"})
    inliner, url = served.gateway.inliner, f"/v1/runs/{writer.run}/events"
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


async def test_json_is_compressed_for_who_takes_it(served: Served, store: Store, writer: Writer) -> None:
    """Artifacts and answers; bytes stay as they are."""
    await ended(writer, store, chart={"data": ["same"] * 50_000})
    url = f"/v1/runs/{writer.run}"
    ref = (await served.http.get(url, params={"artifacts": "refs"})).json()["payload"]["artifacts"]["draw"]["chart"]
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


async def test_a_store_that_is_away(shared_nats: NatsServer, writer: Writer) -> None:
    """503, and soon; a payload is given with its references."""
    async with serving(shared_nats.url, accept_wait_s=0.2) as served:
        answer = await served.http.get(f"/v1/artifacts/{new_id()}")
        await writer.open()
        ref = ref_of(50_000, "application/json", json_type="list", items=3).model_dump(mode="json", exclude_none=True)
        await writer.log(Done(raw_answer="see", reason="answer_complete", artifacts={"draw": {"chart": ref}}))
        status = await served.http.get(f"/v1/runs/{writer.run}")
    assert (answer.status_code, answer.json()["code"], "retry-after" in answer.headers) == (503, "unavailable", True)
    assert status.json()["payload"]["artifacts"]["draw"]["chart"] == ref


async def test_many_artifacts_of_a_store_that_is_away_take_no_longer_than_one(
    shared_nats: NatsServer, bus: Bus, writer: Writer
) -> None:
    """The first ones are waited for; nobody asks for the others."""
    asked: set[str] = set()

    async def hear(message: Msg) -> None:
        asked.add(json.loads(message.data)["artifact_id"])
        await message.respond(
            Fault(code="storage_unavailable", reason="away", retryable=True).model_dump_json().encode()
        )

    store = await bus.nc.subscribe(subjects.ARTIFACT_GET, cb=hear)
    await bus.barrier()
    refs = {
        f"n{number}": ref_of(50_000, "application/json", json_type="list").model_dump(mode="json")
        for number in range(60)
    }
    await writer.open()
    await writer.log(Done(raw_answer="see", reason="answer_complete", artifacts={"draw": refs}))
    async with serving(shared_nats.url, accept_wait_s=0.2) as served:
        status = await served.http.get(f"/v1/runs/{writer.run}")
    await store.unsubscribe()
    assert set(status.json()["payload"]["artifacts"]["draw"]) == set(refs)
    assert 0 < len(asked) < 20
