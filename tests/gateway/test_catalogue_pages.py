"""Pages over HTTP: which there are, and the page of a request."""

from typing import Any

import pytest

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


@pytest.mark.parametrize(
    ("page", "more", "field"),
    [
        ({"name": "tables"}, {}, "page.name"),
        ({**VIEW, "tab": "rows"}, {}, "page.tab"),
        ({**VIEW, "subtab": "rows"}, {}, "page.subtab"),
        ({**VIEW, "selection": list(range(1001))}, {}, "page.selection"),
        ({**VIEW, "filters": {"a": "x" * 65_536}}, {}, "page"),
        ({**VIEW, "role": "admin"}, {}, "page.role"),
        (VIEW, {"strategy": "react"}, "strategy"),
        (VIEW, {"role": "admin"}, "role"),
    ],
)
async def test_a_page_that_there_is_not_is_refused(
    served: Served, page: dict[str, Any], more: dict[str, Any], field: str
) -> None:
    """422 with the field, as a run and in a schedule."""
    run = {"query": "x", "page": page, **more}
    answer = await served.http.post("/v1/runs", json=run)
    assert (answer.status_code, [each["field"] for each in answer.json()["errors"]]) == (422, [field]), answer.text
    if "filters" in page:
        return  # A schedule is smaller than that.
    answer = await served.http.post("/v1/schedules", json={"at": "2099-01-01T00:00:00Z", "run": run})
    assert (answer.status_code, [each["field"] for each in answer.json()["errors"]]) == (422, [f"run.{field}"])


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
