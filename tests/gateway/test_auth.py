"""Who is admitted, and as whom."""

import itertools
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.datastructures import Headers

from services.gateway.auth.caller import ALL_RIGHTS, DEFAULT_RIGHTS, Caller, Right
from services.gateway.auth.guard import OPEN_PATHS, OPEN_ROUTES, SIGNED_ROUTES, Guard, KeyFile, build_guard
from services.gateway.auth.key_lines import new_key
from services.gateway.errors import Forbidden, KeyMissing, StartRefused
from services.gateway.runs import messages
from services.gateway.settings import GatewaySettings
from tests.support.gateways import Served, Writer, bearer, paused, serving, unconnected_routes
from tests.support.nats_server import NatsServer

ANN, ANNS_LINE = new_key("ann")
BOB, BOBS_LINE = new_key("bob")
READER, READERS_LINE = new_key("ann", {"rights": ""})
WITHOUT = {right: new_key("ann", {"rights": ",".join(ALL_RIGHTS - {right})}) for right in ALL_RIGHTS}
"""Keys with all rights but one, and their lines."""


@pytest.fixture
async def keyed(shared_nats: NatsServer) -> AsyncIterator[Served]:
    lines = [ANNS_LINE, BOBS_LINE, READERS_LINE, *(line for _, line in WITHOUT.values())]
    async with serving(shared_nats.url, api_keys=",".join(lines)) as served:
        yield served


RIGHTS: dict[tuple[str, str], Right | None] = {
    ("POST", "/v1/runs"): "run",
    ("GET", "/v1/runs"): None,
    ("GET", "/v1/runs/{run}"): None,
    ("DELETE", "/v1/runs/{run}"): "run",
    ("GET", "/v1/runs/{run}/events"): None,
    ("GET", "/v1/runs/{run}/records"): None,
    ("GET", "/v1/runs/{run}/prompt"): "operate",
    ("POST", "/v1/runs/{run}/ticket"): None,
    ("POST", "/v1/runs/{run}/cancel"): "run",
    ("POST", "/v1/runs/{run}/top-up"): "run",
    ("POST", "/v1/runs/{run}/resume"): "approve",
    ("POST", "/v1/runs/{run}/input"): "run",
    ("GET", "/v1/sessions"): None,
    ("GET", "/v1/sessions/{session}"): None,
    ("DELETE", "/v1/sessions/{session}"): "run",
    ("PUT", "/v1/sessions/{session}/context"): "run",
    ("GET", "/v1/sessions/{session}/events"): None,
    ("POST", "/v1/sessions/{session}/ticket"): None,
    ("GET", "/v1/tasks"): None,
    ("GET", "/v1/tasks/{task}"): None,
    ("POST", "/v1/tasks/{task}/cancel"): "run",
    ("POST", "/v1/tasks/{task}/apply"): "apply",
    ("POST", "/v1/tasks/{task}/reject"): "apply",
    ("GET", "/v1/groups"): None,
    ("GET", "/v1/groups/{group}"): None,
    ("POST", "/v1/groups/{group}/seal"): "run",
    ("POST", "/v1/groups/{group}/cancel"): "run",
    ("POST", "/v1/groups/{group}/apply"): "apply",
    ("POST", "/v1/groups/{group}/reject"): "apply",
    ("POST", "/v1/schedules"): "run",
    ("GET", "/v1/schedules"): None,
    ("GET", "/v1/schedules/{schedule}"): None,
    ("DELETE", "/v1/schedules/{schedule}"): "run",
    ("POST", "/chat"): "run",
    ("POST", "/v1/plans/check"): "run",
    ("POST", "/mcp"): "run",
    ("GET", "/v1/tools"): None,
    ("POST", "/v1/tools/{tool}/call"): "run",
    ("GET", "/v1/tables"): None,
    ("GET", "/v1/tables/{table}"): None,
    ("GET", "/v1/tables/{table}/rows"): None,
    ("POST", "/v1/tables/{table}/rows"): "run",
    ("PATCH", "/v1/tables/{table}/rows/{row}"): "run",
    ("DELETE", "/v1/tables/{table}/rows/{row}"): "run",
    ("GET", "/v1/tables/{table}/export"): None,
    ("POST", "/v1/tables/import"): "run",
    ("GET", "/v1/proposals/{proposal}"): None,
    ("POST", "/v1/proposals/{proposal}/apply"): "apply",
    ("POST", "/v1/proposals/{proposal}/dismiss"): "apply",
    ("GET", "/v1/agents"): None,
    ("GET", "/metrics"): "operate",
    ("GET", "/v1/budget"): None,
    ("GET", "/v1/pages"): None,
    ("GET", "/v1/login"): None,
    ("POST", "/v1/login"): None,
    ("DELETE", "/v1/login"): None,
    ("GET", "/v1/runs/{run}/artifacts"): None,
    ("GET", "/v1/artifacts"): None,
    ("POST", "/v1/artifacts"): "run",
    ("GET", "/v1/artifacts/{artifact}"): None,
    ("HEAD", "/v1/artifacts/{artifact}"): None,
    ("DELETE", "/v1/artifacts/{artifact}"): "run",
}
"""Every route, with the right that it needs; None: any key may read."""
ROUTES = list(RIGHTS)


def address(path: str, run: str) -> str:
    """A path with this run as the run, task, group or schedule that it names."""
    same = dict.fromkeys(("run", "task", "group", "schedule", "proposal"), run)
    return path.format(artifact="x", tool="x", table="tab_1", row=1, session=f"run-{run}", **same)


async def test_without_a_key_every_route_is_closed(keyed: Served, writer: Writer) -> None:
    """Whatever stands in the header, of which each route gets another one, or in the body."""
    no_key = ("x", f"{ANN}x", ANNS_LINE.split()[1], "ä")
    wrong = ("", "Bearer", ANN, f"Basic {ANN}", *(f"Bearer {each}" for each in no_key))
    for (method, path), header in zip(ROUTES, itertools.cycle(wrong), strict=False):
        headers = [(b"Authorization", header.encode())]
        answer = await keyed.http.request(method, address(path, writer.run), headers=headers, content=b"[")
        assert answer.status_code == 401, (method, path, header)
        assert answer.headers["www-authenticate"] == "Bearer"
        if method != "HEAD":
            assert answer.json()["code"] == "unauthorized"
            assert ("none of this gateway's" in answer.json()["detail"]) == header.startswith("Bearer ")


def test_no_route_was_forgotten() -> None:
    """A new route is added to the list above."""
    found = {(method, route.path) for route in unconnected_routes() for method in route.methods or ()}
    listed = {(method, path.replace("}", "_id}").replace("tool_id", "name")) for method, path in ROUTES}
    signed = {("POST", path) for path in SIGNED_ROUTES}
    pages = {("GET", path) for path in OPEN_PATHS | OPEN_ROUTES if re.match("/$|/docs|/playground", path)}
    assert found == listed | signed | pages


async def test_a_route_needs_its_right_before_anything_is_read(keyed: Served, writer: Writer) -> None:
    """A key with every other right is refused, whether or not the run exists and whatever the body is."""
    for (method, path), right in RIGHTS.items():
        header = bearer(WITHOUT[right][0] if right else READER)
        url = address(path, writer.run)
        answer = await keyed.http.request(method, url, headers=header, content=b"[" if method == "POST" else None)
        if right is None:
            assert answer.status_code in {200, 204, 404, 422, 503}, path  # 503: there is no tool runner to read by.
        else:
            assert (answer.status_code, answer.json()["code"]) == (403, "right_missing"), path
            assert f"`{right}`" in answer.json()["detail"]


@pytest.mark.parametrize("tool", ["tasks.apply", "tasks.reject"])
async def test_who_approves_a_models_decision_about_held_results_may_decide_it(
    keyed: Served, writer: Writer, tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The right `approve` alone is enough to refuse it, and for the pauses of other calls; not to reject results."""
    monkeypatch.setattr(messages, "ANSWER_WAIT_S", 0.2)
    of_ann = Writer(writer.bus, "ann")
    await of_ann.open()
    await of_ann.log(paused("1-1", 1, source="task", reason="confirmation", tool=tool), paused("1-2", 2, tool="pay"))
    await of_ann.log(paused("1-3", 3, source="planner", reason="confirmation", tool="tasks.apply"))
    url, key = f"/v1/runs/{of_ann.run}/resume", bearer(WITHOUT["apply"][0])

    async def answer(number: int, decision: str) -> int:
        body = {"pause_id": f"{number:032x}", "token": f"{number:032x}.1.{'0' * 32}", "decision": decision}
        return (await keyed.http.post(url, json=body, headers=key)).status_code

    assert [await answer(1, "approve"), await answer(1, "reject"), await answer(2, "approve")] == [403, 202, 202]
    assert [await answer(3, "approve"), await answer(3, "reject")] == [403, 403]


async def test_what_shows_nothing_of_a_tenant_needs_no_key(keyed: Served) -> None:
    """Probes have none, nor a browser that asks what this is. No page loads scripts, which would run beside a key."""
    for path in ("/livez", "/readyz", "/openapi.json", "/", "/docs"):
        answer = await keyed.http.get(path)
        assert (answer.status_code, "<script" in answer.text) == (200, False), path
    for path in ("/v1/nothing", "/redoc"):
        assert (await keyed.http.get(path)).status_code == 404


async def test_no_cache_stores_what_a_key_shows(keyed: Served) -> None:
    """The next caller of the same browser may have another key."""
    run = (await keyed.http.post("/v1/runs", json={"query": "x"}, headers=bearer(ANN))).json()["url"]
    for path in ("/v1/runs", run, f"{run}/events?last_event_id=x", "/v1/runs/x", "/v1/tools", "/v1/agents"):
        answer = await keyed.http.get(path, headers=bearer(ANN))
        assert answer.headers.get_list("cache-control") == ["no-store"], path


async def test_with_keys_the_name_of_the_host_does_not_matter(keyed: Served) -> None:
    """A browser that was led astray has no key to show."""
    headers = {**bearer(ANN), "Host": "agents.example.org", "Origin": "https://agents.example.org"}
    assert (await keyed.http.get("/v1/runs", headers=headers)).status_code == 200
    assert (await keyed.http.get("/v1/runs", headers={"Authorization": f"bearer  {ANN}"})).status_code == 200
    twice = [("Authorization", f"Bearer {ANN}"), ("Authorization", f"Bearer {ANN}")]
    assert (await keyed.http.get("/v1/runs", headers=twice)).status_code == 401


@pytest.mark.parametrize(
    ("headers", "admitted"),
    [
        ({"host": "127.0.0.1:8080"}, True),
        ({"host": "127.8.9.1"}, True),
        ({"host": "localhost"}, True),
        ({"host": "LOCALHOST:1"}, True),
        ({"host": "[::1]:8080"}, True),
        ({}, False),
        ({"host": ""}, False),
        ({"host": "evil.example"}, False),
        ({"host": "localhost.evil.example"}, False),
        ({"host": "127.0.0.1.evil.example:8080"}, False),
        ({"host": "10.0.0.1"}, False),
        ({"host": "0.0.0.0:8080"}, False),
        ({"host": "[::2]"}, False),
        ({"host": "[::1"}, False),
        ({"host": "[::1].evil.example"}, False),
        ({"host": "127.0.0.1:80@evil.example"}, False),
    ],
)
def test_without_keys_only_this_machine_is_admitted(headers: dict[str, str], admitted: bool) -> None:  # noqa: FBT001
    """Not a name that was bound to 127.0.0.1 elsewhere; `edge/test_origins` has the pages of other origins."""
    guard = Guard(KeyFile("", None))
    if admitted:
        assert guard.caller_of(Headers(headers)) == Caller(tenant="default", rights=ALL_RIGHTS)
    else:
        with pytest.raises(Forbidden):
            guard.caller_of(Headers(headers))


def test_a_key_is_stored_as_its_digest_only() -> None:
    """What the gateway keeps opens nothing."""
    key, line = new_key("ann")
    tenant, digest = line.split()
    assert (tenant, len(digest)) == ("ann", 64)
    assert key not in line
    assert new_key("ann") != (key, line)
    guard = Guard(KeyFile(line, None))
    assert guard.caller_of(Headers(bearer(key))) == Caller(tenant="ann", key_id=digest[:12], rights=DEFAULT_RIGHTS)
    with pytest.raises(KeyMissing):
        guard.caller_of(Headers(bearer(digest)))


def test_a_file_without_keys_does_not_open_the_gateway(tmp_path: Path) -> None:
    """A named file without keys is a mistake."""
    (tmp_path / "keys").write_text("# none yet\n")
    for file in ("keys", "missing"):
        with pytest.raises(StartRefused):
            build_guard(GatewaySettings(api_keys_file=tmp_path / file))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "gateway", ""])
def test_an_open_address_needs_keys(host: str) -> None:
    """One sentence says so."""
    with pytest.raises(StartRefused, match="no API keys"):
        build_guard(GatewaySettings(host=host))
    assert build_guard(GatewaySettings(host=host, api_keys=ANNS_LINE)).caller_of(Headers(bearer(ANN))).tenant == "ann"
