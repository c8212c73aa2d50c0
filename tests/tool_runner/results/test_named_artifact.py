"""Named artifacts: what the model sees of them, and how they are found again."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from nats.aio.client import Client
from pydantic import BaseModel, ConfigDict, Field

from contracts.artifacts import ArtifactRef
from contracts.runs.events import ArtifactStored
from contracts.runs.inbox import CallFinished
from contracts.tools.messages import ToolSpec
from runwire import ToolContext, ToolResponse, tool
from services.shared.redaction.stored_values import from_blob
from services.tool_runner.results.forms import fingerprint
from tests.support.stores import Store
from tests.tool_runner.conftest import Planner, Serve, Start, named_of, replying

SECRET = "swordfish"
HIDDEN: dict[str, Any] = {"artifact": True}
BLOG = {"title": "AI trends 2025", "sections": [{"text": "Agents."}], "sources": ["https://example.org"]}
METADATA = {"context_id": "ctx-456", "request_id": "req-789", "tool_name": "research", "executed_at": "2026-05-01Z"}


Call = Callable[..., Awaitable[CallFinished]]


@pytest.fixture
async def call(planner: Planner, start_runner: Start, client: Client) -> Call:
    """Calls a plain tool that answers with a value, under an output schema."""

    async def make(name: str, value: Any, schema: dict[str, Any] | None = None, **fields: Any) -> CallFinished:
        subscription = await client.subscribe(f"tool.{name}", name, cb=replying(client, json.dumps(value).encode()))
        spec = ToolSpec(name=name, idempotent=True, output_schema=schema)
        finished = await planner.call(name, {"topic": "AI"}, spec=await planner.declare(spec), **fields)
        await subscription.unsubscribe()
        return finished

    await start_runner(*[ToolSpec(name=name, idempotent=True) for name in NAMES])
    return make


NAMES = ("standard", "heavy", "members", "odd")


def standard(artifact: Any, artifact_id: Any = "abc-123", **metadata: Any) -> dict[str, Any]:
    """A canonical result."""
    return {"artifact_id": artifact_id, "artifact": artifact, "_metadata": {**METADATA, **metadata}}


def schema_of(artifact: dict[str, Any] | None = None, **more: dict[str, Any]) -> dict[str, Any]:
    """An output schema of canonical results."""
    return {"type": "object", "properties": {"artifact": artifact or {}, **more}}


def said_to_the_model(finished: CallFinished) -> str:
    """All of an outcome that a model may be shown: everything but the artifacts."""
    return finished.model_copy(update={"artifacts": {}}).model_dump_json()


async def test_the_artifact_is_hidden_stored_and_known_by_its_own_id(
    planner: Planner, call: Call, store: Store
) -> None:
    """The id and `_metadata` stay visible. A small artifact stays in the message as well."""
    value = standard(BLOG, skill_id="research_blog", skill_name="Research")
    run = await planner.open_run()
    finished = await call("standard", value, schema_of(), run=run, session_id="s-own-1")

    size = len(json.dumps(BLOG, separators=(",", ":")))
    assert finished.observation == {**value, "artifact": f"<artifact:dict size={size}B>"}
    assert finished.artifacts == {"artifact": BLOG}
    assert finished.warnings == []
    responded, ref = named_of(finished)
    assert responded.preview is not None
    assert (responded.artifact_id, responded.skill_id, responded.skill_name) == ("abc-123", "research_blog", "Research")
    assert responded.fingerprint == fingerprint("standard", {"topic": "AI"})
    assert responded.preview.counts == {"": 3, "sections": 1, "sources": 1}
    assert json.loads(responded.preview.head) == BLOG

    ref, body = await store.client.read("default", ref.artifact_id, limit=1 << 20)
    assert from_blob(body, ref) == BLOG
    about = (ref.own_id, ref.skill_id, ref.skill_name, ref.namespace)
    assert about == ("abc-123", "research_blog", "Research", "standard")
    for session, of_run in (("s-own-1", None), (None, run)):
        page = await store.client.list("default", session=session, run=of_run, own_id="abc-123")
        assert [each.ref.artifact_id for each in page.artifacts] == [ref.artifact_id]
    (event,) = [event for event in await planner.shown(run) if isinstance(event, ArtifactStored)]
    assert (event.artifact_id, event.field, event.tool) == (ref.artifact_id, "artifact", "standard")


@pytest.mark.usefixtures("store")
async def test_a_large_artifact_is_a_reference(call: Call) -> None:
    """The same one in both places. Its type is told by the shape of its schema."""
    rows = [{"number": number, "text": "x" * 100} for number in range(1000)]
    schema = schema_of({"type": "array", "items": {"type": "object"}})
    finished = await call("heavy", standard(rows), schema)
    responded, ref = named_of(finished)
    assert ArtifactRef.model_validate(finished.artifacts["artifact"]) == ref
    assert (responded.artifact_type, ref.artifact_type) == ("table", "table")
    assert responded.preview is not None
    assert responded.preview.counts == {"": 1000}
    assert len(said_to_the_model(finished)) < 4096


@pytest.mark.usefixtures("store")
async def test_hidden_members_beside_the_artifact_stay_hidden(call: Call) -> None:
    """In `_metadata`, and the id itself: then nothing is known of the artifact but its placeholder."""
    value = standard({"title": "AI"}, SECRET, user_id=SECRET, skill_id=SECRET, skill_name=SECRET)
    names = {"user_id": HIDDEN, "skill_id": HIDDEN, "skill_name": HIDDEN}
    metadata = {"type": "object", "properties": names}
    shown = await call("members", value | {"artifact_id": "abc-123"}, schema_of(_metadata=metadata))
    assert (named_of(shown)[0].skill_id, named_of(shown)[0].skill_name) == (None, None)
    assert SECRET not in said_to_the_model(shown)
    assert shown.artifacts["_metadata.user_id"] == SECRET

    hidden = await call("members", value, schema_of(artifact_id=HIDDEN, _metadata=HIDDEN))
    assert (hidden.responded, hidden.warnings) == (None, [])
    assert hidden.artifacts["artifact"] == {"title": "AI"}
    assert SECRET not in said_to_the_model(hidden)

    whole = await call("members", value, {"artifact": True})
    assert (whole.responded, whole.artifacts) == (None, {"$": value})
    assert SECRET not in said_to_the_model(whole)


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("artifact_id", [7, None, "", "x" * 201, ["abc"]], ids=repr)
async def test_an_id_that_cannot_be_used_is_named_in_a_warning(call: Call, artifact_id: Any) -> None:
    """The result counts, and its artifact is hidden from the model as any other."""
    finished = await call("odd", standard({"title": SECRET}, artifact_id), schema_of())
    assert (finished.status, finished.responded) == ("succeeded", None)
    assert finished.artifacts == {"artifact": {"title": SECRET}}
    assert SECRET not in said_to_the_model(finished)
    (warning,) = finished.warnings
    assert warning.startswith("artifact_without_id: `artifact_id` of odd is not a text of 1 to 200 characters")


class Report(BaseModel):
    """An artifact with parts that only people see."""

    model_config = ConfigDict(json_schema_extra={"x-artifact-type": "Report"})

    title: str
    salaries: list[str] = Field(json_schema_extra=HIDDEN)
    chart: dict[str, str] = Field(json_schema_extra={**HIDDEN, "stream": True, "stream_id": "chart"})


async def test_a_python_tool_says_nothing_of_what_is_hidden(
    planner: Planner, start_runner: Start, serve_tools: Serve, store: Store
) -> None:
    """Neither in its observation nor in the preview, also where a part of the artifact was shown as it grew."""

    @tool(idempotent=True)
    async def report(topic: str, ctx: ToolContext) -> ToolResponse[Report]:
        await ctx.emit_artifact(stream_id="chart", chunk={"bar": SECRET}, done=True, artifact_type="echarts")
        made = Report(title=topic, salaries=[SECRET] * 20_000, chart={"bar": SECRET})
        return ToolResponse(made, artifact_id="abc-123", skill_id="reporting", content="a report on AI")

    serve_tools(report)
    await start_runner()
    finished = await planner.call("report", {"topic": "AI"}, session_id="ctx-456", request_id="req-789")
    assert finished.content == "a report on AI"
    assert finished.observation["_metadata"]["request_id"] == "req-789"
    responded, ref = named_of(finished)
    assert responded.preview is not None
    assert responded.preview.head == (
        '{"title":"AI","salaries":"<artifact:list size=20000 items>","chart":"<artifact:dict stream=chart>"}'
    )
    assert (responded.artifact_type, responded.skill_id) == ("report", "reporting")
    assert list(finished.artifacts) == ["artifact"]
    assert SECRET not in said_to_the_model(finished)
    _, body = await store.client.read("default", ref.artifact_id, limit=1 << 20)
    assert json.loads(body)["salaries"][:1] == [SECRET]
