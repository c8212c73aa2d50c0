"""docs/http.md and the pages of reference say what the gateway does: its routes, its frames."""

import json
import re
from html import unescape

from services.gateway.edge.description import Alive, Readiness
from services.gateway.errors import MEDIA_TYPE
from services.runtime.health import Health
from tests.support import reference_pages
from tests.support.gateways import ROOT, serving, unconnected_routes
from tests.support.nats_server import NatsServer

TEXT = (ROOT / "docs" / "http.md").read_text(encoding="utf-8")


def test_openapi_describes_the_routes() -> None:
    """Those of the gateway but for its page, with the probes that its server answers."""
    in_openapi = {
        (method.upper(), re.sub(r"{\w+}", "{id}", path))
        for path, operations in reference_pages.description()["paths"].items()
        for method in operations
    } | {("HEAD", "/v1/artifacts/{id}")}
    served = {
        (method, re.sub(r"{\w+}", "{id}", route.path))
        for route in unconnected_routes()
        for method in route.methods or ()
    }
    assert in_openapi - served == {("GET", "/livez"), ("GET", "/readyz")}
    assert served - in_openapi == {("GET", path) for path in ("/", "/docs", "/playground", "/playground/assets/{id}")}


def test_the_pages_of_reference_are_current() -> None:
    """`make schemas` writes them."""
    pages = reference_pages.pages()
    assert {file: (reference_pages.FOLDER / file).read_text(encoding="utf-8") for file in pages} == pages


def test_what_docs_ask_for_is_a_route() -> None:
    """In examples and in prose. Problems have their media type there."""
    assert MEDIA_TYPE in TEXT
    described = re.findall(r"`(GET|HEAD|PATCH|POST|PUT|DELETE) (/[^`?{]*)", TEXT)
    paths = reference_pages.description()["paths"]
    routes = {(method.upper(), path.partition("{")[0]) for path in paths for method in paths[path]}
    assert {*described} - {("HEAD", "/v1/artifacts/")} <= routes


async def test_a_page_shows_the_description(nats_server: NatsServer) -> None:
    """Every route and schema, with links that lead to one, under a policy that lets nothing run or load."""
    async with serving(nats_server.url) as served:
        answer = await served.http.get("/docs")
    document = reference_pages.description()
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; style-src 'sha256-")
    assert "<script" not in answer.text
    assert {unescape(found) for found in re.findall(r"<summary><code>([A-Z]+ /\S+)</code>", answer.text)} == {
        f"{method.upper()} {path}" for path, operations in document["paths"].items() for method in operations
    }
    assert {*re.findall(r'id="([^"]+)"', answer.text)} == document["components"]["schemas"].keys()
    assert {*re.findall(r'href="#([^"]+)"', answer.text)} <= document["components"]["schemas"].keys()
    assert "`" not in re.sub("<style>.*</style>", "", answer.text, flags=re.DOTALL)


def test_openapi_groups_each_operation_once() -> None:
    """Generators of clients make a class of each tag."""
    operations = [each for methods in reference_pages.description()["paths"].values() for each in methods.values()]
    assert [each["operationId"] for each in operations if len(each["tags"]) != 1 and "operationId" in each] == []


def test_openapi_says_which_events_a_stream_has() -> None:
    """By the name of a schema, which lists all that this version knows. Every reference leads somewhere."""
    document = reference_pages.description()
    schemas = document["components"]["schemas"]
    for path, name, event in (
        ("runs/{run_id}", "RunEvent", "Chunk"),
        ("sessions/{session_id}", "SessionEvent", "RunBegun"),
    ):
        answer = document["paths"][f"/v1/{path}/events"]["get"]["responses"]["200"]
        item = answer["content"]["text/event-stream"]["itemSchema"]
        assert item["properties"]["data"]["contentSchema"] == {"$ref": f"#/components/schemas/{name}"}
        assert f"#/components/schemas/{event}" in json.dumps(schemas[name])
    referred = set(re.findall(r"#/components/schemas/([\w.-]+)", json.dumps(document)))
    assert referred <= {*schemas}


def test_probes_answer_as_openapi_says() -> None:
    """The models of the document fit the answers of the server."""
    health = Health("gateway", lambda: ["NATS is not connected"])
    for path, model in (("/livez", Alive), ("/readyz", Readiness)):
        answered = health.answer(path)
        assert answered is not None
        assert model.model_validate(answered[1]).model_dump() == answered[1]
