"""What bad input gets: always a problem, always naming what is wrong, never a stack trace."""

import gzip
import itertools
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from contracts.wire.names import new_id
from services.gateway.errors import MEDIA_TYPE, RefusedByPlanner
from tests.support import reference_pages
from tests.support.gateways import Served, assert_unavailable, connection, serving, unconnected_routes
from tests.support.nats_server import NatsServer


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Check that the answer is this problem and return it."""
    assert answer.headers["content-type"] == MEDIA_TYPE
    body: dict[str, Any] = answer.json()
    assert (answer.status_code, body["status"], body["code"]) == (status, status, code)
    assert body["type"] == f"urn:runwire:problem:{code}"
    assert body["title"]
    assert body["detail"]
    return body


JSON = b'{"query": "x"}'
HALF_A_BODY = b"POST /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{"
BODIES = [
    (b"", ""),
    (b"not json", ""),
    (b"\xff\xfe", ""),
    (b'{"query": "x"', ""),
    (b'{"query": "\\ud800"}', ""),
    (b'{"query": "x", "llm_context": {"n": NaN}}', ""),
    (b'{"query": "x", "llm_context": {"n": 1e999}}', ""),
    (b'{"query": "x", "llm_context": ' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}", ""),
    (b"[" * 200_000, ""),
    (b"[]", ""),
    (b"null", ""),
    (b"{}", "query"),
    (b'{"query": ""}', "query"),
    (b'{"query": " \\n\\t"}', "query"),
    (b'{"query": 1}', "query"),
    (b'{"query": "x", "agnet": "a"}', "agnet"),
    (b'{"query": "x", "agent": "a b"}', "agent"),
    (b'{"query": "x", "agent": null}', "agent"),
    (b'{"query": "x", "strategy": "magic"}', "strategy"),
    (b'{"query": "x", "tools": "all"}', "tools"),
    (b'{"query": "x", "tools": ["ok", "a.b"]}', "tools.1"),
    (b'{"query": "x", "tools": ["a", 1]}', "tools.1"),
    (b'{"query": "x", "limits": {"max_steps": "3"}}', "limits.max_steps"),
    (b'{"query": "x", "limits": {"max_steps": 0}}', "limits.max_steps"),
    (b'{"query": "x", "limits": {"max_steps": true}}', "limits.max_steps"),
    (b'{"query": "x", "limits": {"steps": 3}}', "limits.steps"),
    (b'{"query": "x", "llm_context": []}', "llm_context"),
]


async def test_a_body_that_does_not_fit_is_told_where(served: Served) -> None:
    """422 with the field's path; an empty one means the body as a whole."""
    for body, field in BODIES:
        found = problem(await served.http.post("/v1/runs", content=body), 422, "invalid_input")
        assert [error["field"] for error in found["errors"]] == [field], body[:100]
        assert all(error["message"] for error in found["errors"])


async def test_every_wrong_field_is_named_at_once(served: Served) -> None:
    """So that a caller corrects them together."""
    answer = await served.http.post("/v1/runs", json={"agent": 1, "limits": {"max_steps": 0, "x": 1}})
    found = problem(answer, 422, "invalid_input")
    assert {error["field"] for error in found["errors"]} == {"query", "agent", "limits.max_steps", "limits.x"}


async def test_the_words_are_not_those_of_a_library(served: Served) -> None:
    """A misspelt field and a wrong shape are named in words of JSON."""
    said: dict[bytes, str] = {
        b'{"query": "x", "agnet": "a"}': "there is no such field",
        b"[]": "must be a JSON object",
        b'{"query": " \\n\\u00a0"}': "holds nothing but white space",
        b'{"query": "x", "llm_context": []}': "must be a JSON object",
        b'{"query": "x", "images": [{}]}': "give either artifact_id or data",
    }
    for body, message in said.items():
        found = problem(await served.http.post("/v1/runs", content=body), 422, "invalid_input")
        assert [error["message"] for error in found["errors"]] == [message]
    blank = await served.http.post("/chat", json={"query": " "})  # It would cost a call of the model.
    assert problem(blank, 422, "invalid_input")["errors"][0]["field"] == "query"


async def test_an_address_that_is_none_says_where_the_addresses_are(served: Served) -> None:
    """The problem names the list of addresses."""
    assert "GET /openapi.json" in problem(await served.http.get("/v1/run"), 404, "not_found")["detail"]


async def test_values_are_not_repeated_in_the_answer(served: Served) -> None:
    """They may be secrets, put in the wrong place."""
    answer = await served.http.post("/v1/runs", json={"query": "x", "session_id": 123456789, "llm_context": "s3cr3t"})
    assert "s3cr3t" not in answer.text
    assert "123456789" not in answer.text


async def test_an_idempotency_key_has_a_form(served: Served) -> None:
    """1 to 255 visible characters of ASCII; of two of them either could be meant."""
    for values in ([""], ["a b"], ["ä"], ["x" * 256], ["a", "b"]):
        headers = [(b"Idempotency-Key", value.encode()) for value in values]
        answer = await served.http.post("/v1/runs", json={"query": "x"}, headers=headers)
        assert problem(answer, 422, "invalid_input")["errors"][0]["field"] == "Idempotency-Key"


@pytest.mark.parametrize(
    ("body", "encoding", "status", "says"),
    [
        (b"\xef\xbb\xbf" + JSON, "", 202, ""),
        (JSON, "identity", 202, ""),
        (JSON, "UTF-8", 202, ""),  # A common mistake.
        (gzip.compress(JSON), "gzip", 415, "send it as it is"),
        (JSON, "br", 415, "send it as it is"),
        ('{"query": "Grüße"}'.encode("latin-1"), "", 422, "not UTF-8"),
        ('{"query": "x"}'.encode("utf-16"), "", 422, "not UTF-8"),
    ],
    ids=["a mark", "identity", "utf-8", "gzip", "br", "latin-1", "utf-16"],
)
async def test_a_body_is_json_in_utf_8(served: Served, body: bytes, encoding: str, status: int, says: str) -> None:
    """With or without a byte order mark, and not compressed: of uploads too."""
    headers = {"Content-Encoding": encoding} if encoding else {}
    answer = await served.http.post("/v1/runs", content=body, headers=headers)
    assert (answer.status_code, says in answer.text) == (status, True)
    if status == 415:
        upload = await served.http.post("/v1/artifacts?session_id=s", content=body, headers=headers)
        problem(upload, 415, "encoding_unsupported")


async def test_head_answers_as_get_without_the_body(served: Served) -> None:
    """As monitors and proxies ask. An event stream has no end, so none is begun."""
    for path, status in (("/v1/runs", 200), ("/v1/tools", 200), ("/v1/nothing", 404), ("/v1/runs/x/events", 405)):
        answer = await served.http.head(path)
        assert (answer.status_code, answer.content) == (status, b""), path


async def test_a_body_above_the_limit_is_refused(served: Served) -> None:
    """With its length announced, or counted as it comes: nothing that a caller announces is believed."""
    body = {"query": "x", "llm_context": {"text": "y" * (1 << 20)}}
    problem(await served.http.post("/v1/runs", json=body), 413, "body_too_large")
    read = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read
        for _ in range(10_000):
            read += 1 << 16
            yield b"y" * (1 << 16)

    try:
        answer = await served.http.post("/v1/runs", content=endless())
        problem(answer, 413, "body_too_large")
    except httpx.TransportError:
        pass  # The gateway closed the connection while the client was still sending.
    assert read < 64 << 20, "the gateway stopped reading"


async def test_a_request_that_would_not_fit_a_record_is_refused(shared_nats: NatsServer) -> None:
    """Where a deployment raises the limit of bodies, the limit of messages still holds."""
    async with serving(shared_nats.url, max_body_bytes=4 << 20) as served:
        large, fits = ({"query": "x", "llm_context": {"text": "y" * size}} for size in (950_000, 900_000))
        problem(await served.http.post("/v1/runs", json=large), 413, "body_too_large")
        assert (await served.http.post("/v1/runs", json=fits)).status_code == 202


PATHS = [
    ("GET", "/v1/runs/{run}"),
    ("GET", "/v1/runs/{run}/events"),
    ("POST", "/v1/runs/{run}/cancel"),
    ("GET", "/v1/runs/{run}/artifacts"),
    ("GET", "/v1/artifacts/{run}"),
    ("DELETE", "/v1/artifacts/{run}"),
    ("GET", "/nowhere"),
    ("GET", "/v1/runs/"),
]


async def test_everything_missing_is_404_with_the_same_bytes(served: Served) -> None:
    """Whatever stands in the place of an id: nothing of it reaches a subject."""
    missing = await served.http.get(f"/v1/runs/{new_id()}")
    odd = ("unknown", "0" * 31, "g" * 32, "0" * 32 + "%0a", "*", "a.b", ">", "%2e%2e", "x" * 5000)
    for (method, path), run in itertools.product(PATHS, odd):
        answer = await served.http.request(method, path.format(run=run))
        problem(answer, 404, "not_found")
        assert answer.content == missing.content


async def test_a_wrong_method_names_the_right_one(served: Served) -> None:
    """405 with Allow, which names all that there are."""
    for path, allowed in [
        ("/v1/runs/abc", "DELETE, GET"),
        ("/v1/runs", "GET, POST"),
        (f"/v1/artifacts/{new_id()}", "DELETE, GET, HEAD"),
    ]:
        answer = await served.http.put(path)
        problem(answer, 405, "method_not_allowed")
        assert answer.headers["allow"] == allowed


async def test_a_wrong_parameter_is_named(served: Served) -> None:
    """422, as for a body."""
    for query, field in [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=x", "limit"),
        ("status=good", "status"),
        ("cursor=!", "cursor"),
        ("limt=5", "limt"),
    ]:
        found = problem(await served.http.get(f"/v1/runs?{query}"), 422, "invalid_input")
        assert [error["field"] for error in found["errors"]] == [field]


def test_a_problem_may_hold_an_integer_of_any_size() -> None:
    """As the arguments of a call that waits do."""
    shown = [{"arguments": {"sum": 10**40}}]
    assert json.loads(bytes(RefusedByPlanner("pause_changed", "", pauses=shown).response().body))["pauses"] == shown


async def test_an_unexpected_error_shows_no_details(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """500 without details; they are in the log."""

    async def broken(*_: object) -> None:
        raise RuntimeError("the secret cause")

    monkeypatch.setattr(served.parts.runs, "find", broken)
    answer = await served.http.get(f"/v1/runs/{new_id()}")
    problem(answer, 500, "internal")
    assert "secret" not in answer.text


async def test_a_client_that_disconnects_within_a_body_breaks_nothing(served: Served) -> None:
    """The connection ends; the next request is answered."""
    async with connection(served, HALF_A_BODY) as (reader, writer):
        writer.close()
        await reader.read()
    assert (await served.http.get("/v1/runs")).status_code == 200


async def test_without_nats_every_answer_has_retry_after(own_nats_server: NatsServer) -> None:
    """503 with Retry-After; the process lives, and is not ready."""
    async with serving(own_nats_server.url, accept_wait_s=0.3) as served:
        own_nats_server.kill()
        paths = [("POST", "/v1/runs"), ("POST", "/chat"), ("GET", f"/v1/runs/{new_id()}"), ("GET", "/v1/runs")]
        paths += [("GET", f"/v1/runs/{new_id()}/events"), ("POST", f"/v1/runs/{new_id()}/cancel")]
        for method, path in paths:
            body = {"query": "x"} if method == "POST" and "cancel" not in path else None
            assert_unavailable(await served.http.request(method, path, json=body))
        assert (await served.http.get("/livez")).status_code == 200
        assert (await served.http.get("/readyz")).status_code == 503
        assert (await served.http.get("/v1/tools")).status_code == 200


async def test_a_slow_body_is_not_awaited_for_ever(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """408, so that idle uploads hold nothing."""
    monkeypatch.setattr("services.gateway.edge.request_body._BODY_TIMEOUT_S", 0.1)
    async with connection(served, HALF_A_BODY) as (reader, _):
        text = (await reader.read()).decode()
    assert text.startswith("HTTP/1.1 408 ")
    assert '"code":"body_too_slow"' in text


def test_openapi_describes_bodies_errors_and_streams() -> None:
    """The bodies that the gateway reads itself are there."""
    document = reference_pages.description()
    schemas = document["components"]["schemas"]
    wanted = {"RunInput", "LimitsInput", "CancelInput", "ChatInput", "ProblemBody", "RunStatus", "RunAccepted"}
    assert wanted <= schemas.keys()
    for path in document["paths"].keys() - {"/livez", "/readyz"}:
        for operation in document["paths"][path].values():
            assert MEDIA_TYPE in operation["responses"]["default"]["content"]


def test_openapi_describes_what_is_accepted() -> None:
    """What is refused, the document does not offer; what is taken, it does not forbid."""
    document = reference_pages.description()
    paths, schemas = document["paths"], document["components"]["schemas"]
    parameters = [
        each for path in paths.values() for operation in path.values() for each in operation.get("parameters", ())
    ]
    assert parameters
    assert not [each["name"] for each in parameters if "null" in json.dumps(each["schema"])]
    cursor = next(each for each in paths["/v1/runs"]["get"]["parameters"] if each["name"] == "cursor")["schema"]
    assert not re.search(cursor["pattern"], "!")
    assert "pattern" in json.dumps(schemas["RunInput"]["properties"]["tools"])
    assert schemas["TopUpInput"]["properties"]["limits"]["minProperties"] == 1
    assert not paths["/v1/artifacts"]["post"]["requestBody"].get("required")
    of_events = paths["/v1/runs/{run_id}/events"]["get"]["parameters"]
    event_id = next(each["schema"]["pattern"] for each in of_events if each["name"].lower() == "last-event-id")
    assert [text for text in ("17-42", "", "4", "x") if re.search(event_id, text)] == ["17-42", ""]
    upload = paths["/v1/artifacts"]["post"]["requestBody"]["content"]
    assert upload.keys() == {"application/octet-stream", "multipart/form-data"}
    assert upload["multipart/form-data"]["schema"]["required"] == ["file"]
    assert not paths["/v1/artifacts/{artifact_id}"]["get"]["responses"]["200"]["content"]["*/*"], "bytes have no schema"
    assert not re.search(schemas["RunInput"]["properties"]["query"]["pattern"], " \u00a0\n")


async def test_whole_numbers_may_have_a_point(served: Served) -> None:
    """JSON has one kind of number, and so has JSON Schema."""
    for limit, status in ((4.0, 202), (4.5, 422), ("4", 422), (True, 422)):
        answer = await served.http.post("/v1/runs", json={"query": "?", "limits": {"max_steps": limit}})
        assert answer.status_code == status, answer.text


def test_requests_are_read_by_the_gateway_itself() -> None:
    """FastAPI would read a body before it checks the key, and without a limit."""
    assert all(getattr(route, "body_field", None) is None for route in unconnected_routes())
