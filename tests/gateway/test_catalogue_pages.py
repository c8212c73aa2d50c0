"""Pages over HTTP: which there are, and the page of a request."""

from typing import Any

from services.gateway.auth.key_lines import new_key
from tests.support.gateways import Served, serving
from tests.support.nats_server import NatsServer

VIEW = {"name": "table_view", "table_id": "tab_1"}


async def test_pages_are_listed(served: Served) -> None:
    """With what counts on each."""
    answer = (await served.http.get("/v1/pages")).json()
    listed = {page["name"]: page for page in answer["pages"]}
    assert list(listed) == ["table_edit", "table_view", "tables_list"]
    assert listed["table_view"] == {
        "name": "table_view",
        "description": "The rows of a table",
        "tabs": [],
        "payloads": ["schema_proposal", "data_proposal"],
        "client_actions": [{"name": "close_chat", "description": "Closes the chat."}],
    }
    assert answer["role"] == "user"


WRONG: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"name": "tables"}, {}, "page.name"),
    ({**VIEW, "tab": "rows"}, {}, "page.tab"),
    ({**VIEW, "subtab": "rows"}, {}, "page.subtab"),
    ({**VIEW, "selection": list(range(1001))}, {}, "page.selection"),
    ({**VIEW, "filters": {"a": "x" * 65_536}}, {}, "page"),
    ({**VIEW, "role": "admin"}, {}, "page.role"),
    (VIEW, {"strategy": "react"}, "strategy"),
    (VIEW, {"role": "admin"}, "role"),
]
"""A page, what is said beside it, and the field that is wrong."""


async def test_a_page_that_there_is_not_is_refused(served: Served) -> None:
    """422 with the field, as a run and in a schedule, which is smaller than such filters."""
    for page, more, field in WRONG:
        run = {"query": "x", "page": page, **more}
        bodies: dict[str, Any] = {"/v1/runs": run, "/v1/schedules": {"at": "2099-01-01T00:00:00Z", "run": run}}
        for path, body in bodies.items() if "filters" not in page else [("/v1/runs", run)]:
            answer = await served.http.post(path, json=body)
            wanted = field if path == "/v1/runs" else f"run.{field}"
            assert (answer.status_code, [each["field"] for each in answer.json()["errors"]]) == (422, [wanted])


async def test_the_role_comes_from_the_key(nats_server: NatsServer) -> None:
    """Of a request with a page it is stored; a key without one has the role `user`."""
    keys = {role: new_key("pages", {"role": role} if role != "user" else {}) for role in ("editor", "user")}
    async with serving(nats_server.url, api_keys="\n".join(line for _, line in keys.values())) as served:
        for role, (key, _) in keys.items():
            headers = {"Authorization": f"Bearer {key}"}
            assert (await served.http.get("/v1/pages", headers=headers)).json()["role"] == role
            for page, stored in ((VIEW, role), (None, "")):
                body = {"query": "x", "page": page}
                run = (await served.http.post("/v1/runs", json=body, headers=headers)).json()["run_id"]
                found = await served.parts.runs.find("pages", run)
                assert found is not None
                assert (request := found.request()) is not None
                assert request.role == stored
