"""Artifacts over HTTP, with a real store behind the gateway."""

import hashlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from contracts.artifacts import SAID, ArtifactRef
from contracts.wire.names import new_id
from runwire.cli.report import stored_artifacts
from runwire.client import Client
from runwire.errors import NotFound
from tests.support.gateways import Served, Writer, serving
from tests.support.nats_server import NatsServer
from tests.support.stores import Store

PDF = b"%PDF-1.7\n" + bytes(range(256)) * 100
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 50


async def upload(http: httpx.AsyncClient, body: bytes, mime_type: str | None = None, **query: str) -> ArtifactRef:
    answer = await http.post(
        "/v1/artifacts", content=body, params=query, headers={"Content-Type": mime_type} if mime_type else {}
    )
    assert answer.status_code == 201, answer.text
    return ArtifactRef.model_validate_json(answer.content)


@pytest.mark.usefixtures("store")
async def test_a_file_comes_back_byte_for_byte(served: Served) -> None:
    """As a whole, in ranges, not at all when it is known; with the type that its bytes have."""
    ref = await upload(served.http, PDF, filename="report.pdf", session_id="s")
    digest = hashlib.sha256(PDF).hexdigest()
    assert (ref.mime_type, ref.filename, ref.sha256) == ("application/pdf", "report.pdf", digest)
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
@pytest.mark.parametrize("kind", ["application/json", "application/geo+json; charset=utf-8"])
async def test_if_none_match_with_the_compressed_tag(served: Served, kind: str) -> None:
    """The tag of an answer without a body is that of the bytes that the caller has, so that caches find them."""
    ref = await upload(served.http, json.dumps(["x"] * 2000).encode(), kind)
    url = f"/v1/artifacts/{ref.artifact_id}"
    for accepted in ("gzip", "identity"):
        headers = {"Accept-Encoding": accepted}
        whole = await served.http.get(url, headers=headers)
        known = await served.http.get(url, headers={**headers, "If-None-Match": whole.headers["etag"]})
        assert whole.headers.get("content-encoding", "identity") == accepted
        assert (known.status_code, known.headers["etag"]) == (304, whole.headers["etag"])


class Torn(httpx.AsyncHTTPTransport):
    """Connections that break after some bytes of an answer, three times."""

    times = 3

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer, and tear."""
        answer = await super().handle_async_request(request)
        if self.times:
            self.times -= 1
            answer.stream = TornBody(answer.stream)
        return answer


@dataclass
class TornBody(httpx.AsyncByteStream):
    """The beginning of a body."""

    body: Any

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self.body:
            yield piece[:1000]
            raise httpx.ReadError("as the test wants it")

    async def aclose(self) -> None:
        """Drop the rest."""
        await self.body.aclose()


@pytest.mark.usefixtures("store")
async def test_the_client_fetches_over_broken_connections(served: Served) -> None:
    """It goes on where it was; and says so when there is nothing. A large file passes in chunks, both ways."""
    body = bytes(range(256)) * (4096 * 5 + 3)
    ref = await upload(served.http, body)
    async with Client(served.url, patience_s=10) as client:
        client._transport.http._transport = Torn()
        assert b"".join([piece async for piece in client.fetch(ref.artifact_id)]) == body
        with pytest.raises(NotFound):
            await anext(client.fetch(new_id()))


@pytest.mark.usefixtures("store")
async def test_a_form_brings_a_file(served: Served) -> None:
    """Its name and type come with it; a form without one is refused, and so is one that says more."""
    file = {"file": ("dot.png", PNG, "image/png")}
    answer = await served.http.post("/v1/artifacts", files=file)
    assert (answer.status_code, answer.json()["filename"], answer.json()["mime_type"]) == (201, "dot.png", "image/png")
    shown = await served.http.get(answer.headers["location"])
    assert (shown.content, shown.headers["content-disposition"][:6]) == (PNG, "inline")
    without = await served.http.post("/v1/artifacts", files={"note": (None, b"x")})
    assert (without.status_code, without.json()["errors"][0]["field"]) == (422, "file")
    for field, said in (("session_id", "/v1/artifacts?session_id="), ("note", "nothing else")):
        astray = await served.http.post("/v1/artifacts", files=file, data={field: "s"})
        assert (astray.status_code, astray.json()["errors"][0]["field"]) == (422, field)
        assert said in astray.json()["errors"][0]["message"]
    form = b'--B\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nx\r\n--B--\r\n'
    headers = {"Content-Type": "multipart/form-data; boundary=B; charset=undefined"}
    unread = await served.http.post("/v1/artifacts", content=form, headers=headers)
    assert (unread.status_code, unread.json()["code"]) == (422, "invalid_input")


@pytest.mark.usefixtures("store")
async def test_uploads_that_are_refused(shared_nats: NatsServer) -> None:
    """Bytes that are not what they are called, and too many of them."""
    async with serving(shared_nats.url, max_upload_bytes=100_000) as served:
        wrong = await served.http.post("/v1/artifacts", content=b"no image", headers={"Content-Type": "image/png"})

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
    said = await store.client.put("default", b"hidden", session=session, run=writer.run, namespace=SAID)
    assert (await served.http.get(f"/v1/artifacts/{said.artifact_id}")).status_code == 404

    query: dict[str, Any] = {"session_id": session, "limit": 2}
    first = (await served.http.get("/v1/artifacts", params=query)).json()
    rest = (await served.http.get("/v1/artifacts", params={**query, "cursor": first["next_cursor"]})).json()
    of_run = (await served.http.get(f"/v1/runs/{writer.run}/artifacts")).json()
    listed = [each["ref"]["artifact_id"] for each in first["artifacts"] + rest["artifacts"]]
    assert listed == [ref.artifact_id for ref in [*refs, own]]
    assert [each["ref"]["artifact_id"] for each in of_run["artifacts"]] == [own.artifact_id]
    assert (await served.http.get(f"/v1/runs/{new_id()}/artifacts")).status_code == 404

    url = f"/v1/artifacts/{refs[0].artifact_id}"
    assert (await served.http.delete(url)).status_code == 204
    assert (await served.http.delete(url)).status_code == 404
    assert (await served.http.get(url)).status_code == 404


async def test_an_artifact_is_found_by_the_id_that_its_tool_gave_it(
    served: Served, store: Store, writer: Writer
) -> None:
    """In one request, in its session and in its run, with both ids; also through the client."""
    session = new_id()
    await writer.open(session_id=session)
    place: dict[str, Any] = {"session": session, "run": writer.run, "namespace": "blog", "own_id": "abc-123"}
    older = await store.client.put("default", b"older", **place)
    newer = await store.client.put("default", b"newer", skill_id="writing", skill_name="Writing", **place)
    wanted = {"artifact_id": newer.artifact_id, "own_id": "abc-123", "skill_id": "writing", "skill_name": "Writing"}

    for path, params in (("/v1/artifacts", {"session_id": session}), (f"/v1/runs/{writer.run}/artifacts", {})):
        for query in ({"own_id": "abc-123"}, {"skill_id": "writing"}, {"own_id": "abc-123", "skill_id": "writing"}):
            (found,) = (await served.http.get(path, params=params | query)).json()["artifacts"]
            assert wanted.items() <= found["ref"].items()
        for nothing in ({"own_id": "abc"}, {"own_id": "abc-123", "skill_id": "other"}, {"skill_id": ""}):
            assert (await served.http.get(path, params=params | nothing)).json()["artifacts"] == []
        both = (await served.http.get(path, params=params)).json()["artifacts"]
        assert [each["ref"]["artifact_id"] for each in both] == [older.artifact_id, newer.artifact_id]
        refused = await served.http.get(path, params=params | {"own_id": "x" * 201})
        assert (refused.status_code, "own_id" in refused.text) == (422, True)

    async with Client(str(served.http.base_url)) as client:
        assert [ref async for ref in client.artifacts(session_id=session, own_id="abc-123")] == [newer]
        assert [ref async for ref in client.artifacts(writer.run, skill_id="writing")] == [newer]
        (listed,) = [each async for each in stored_artifacts(client, None, session, own_id="abc-123")]
        assert wanted.items() <= listed.described().items()
        for wrong in ({}, {"run_id": writer.run, "session_id": session}):
            with pytest.raises(ValueError, match="either a run or a session"):
                await anext(client.artifacts(**wrong))
