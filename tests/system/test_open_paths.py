"""What answers without a key: every route of every service is asked, the services as they are deployed."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import httpx

from services.gateway.auth.guard import OPEN_PATHS
from services.gateway.auth.key_lines import new_key
from tests.support.gateways import Served, serving
from tests.support.nats_server import NatsServer
from tests.system.deployment import Whole

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
PROBES = {"/livez", "/readyz"}
FORMER = ("/docs/asyncapi", "/docs/asyncapi.json", "/docs/asyncapi/try", "/asyncapi", "/docs", "/redoc")
"""Where pages and documents of the frameworks would be; a publish on `/docs/asyncapi/try` went to any subject."""
PUBLISH = {"channelName": "$JS.API.STREAM.DELETE.RUNS", "message": {"message": {}}}


def walked(routes: Iterable[Any]) -> Iterator[str]:
    """The paths of these routes, and of the routers that were included among them.

    A route of neither kind ends the test.
    """
    for route in routes:
        if (included := getattr(route, "original_router", None)) is not None:
            yield from walked(included.routes)
        else:
            yield route.path


def paths_of(served: Served) -> set[str]:
    """Every path of the gateway, with ids filled in, and those that the frameworks would add."""
    routes = list(walked(served.server._http.routes))  # type: ignore[attr-defined]
    return {re.sub(r"{\w+}", "0" * 32, path) for path in (*routes, *PROBES, *FORMER)}


async def test_without_a_key_the_gateway_answers_on_the_open_paths_alone(own_nats_server: NatsServer) -> None:
    """With any method, and whatever the body is."""
    _, line = new_key("ann")
    async with serving(own_nats_server.url, api_keys=line) as served:
        paths = paths_of(served)
        assert len(paths) > 15, "the walk has lost the routes"
        answered = set()
        for path in sorted(paths):
            for method in METHODS:
                reply = await served.http.request(method, path, json=PUBLISH)
                if reply.is_success:
                    answered.add(path)
                else:
                    assert reply.status_code in {401, 404, 405}, (method, path)
        assert answered == OPEN_PATHS == {"/", "/livez", "/readyz", "/openapi.json", "/docs", "/playground"}


async def test_a_route_that_forgets_to_ask_for_the_tenant_is_closed(own_nats_server: NatsServer) -> None:
    """A path is open because the list names it, not because somebody wrote less."""
    key, line = new_key("ann")
    async with serving(own_nats_server.url, api_keys=line) as served:
        served.server._http.add_api_route("/forgotten", lambda: "open")  # type: ignore[attr-defined]
        assert (await served.http.get("/forgotten")).status_code == 401
        assert (await served.http.get("/forgotten", headers={"Authorization": f"Bearer {key}"})).status_code == 200


async def test_the_services_behind_the_gateway_answer_probes_and_metrics_alone(whole: Whole) -> None:
    """They have no keys at all: whatever else they answered would be everybody's."""
    services = [name for kind in ("planner", "tool_runner", "artifact_store") for name in whole.stack.names(kind)]
    assert services
    for name in services:
        async with httpx.AsyncClient(base_url=whole.stack.url_of(name), timeout=20) as http:
            answered = {
                path
                for path in (*PROBES, "/metrics", "/", *FORMER)
                for method in METHODS
                if (await http.request(method, path, json=PUBLISH)).is_success
            }
        assert answered == {*PROBES, "/metrics"}, name
