"""References in arguments: a tool gets values, the whole of an artifact or a part of it."""

import hashlib
import json
import random
from collections.abc import AsyncIterator
from typing import Annotated, Any

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from pydantic import BaseModel, Field

from contracts.artifacts import BY_REFERENCE, ArtifactRef, GetArtifact
from contracts.runs.inbox import CallFinished
from contracts.tools.messages import ToolCall, ToolSpec
from contracts.wire import subjects
from contracts.wire.base import PART_BYTES
from contracts.wire.faults import Fault
from runwire import ToolContext, tool
from services.shared.redaction.stored_values import from_blob, to_blob
from tests.support.stores import Store
from tests.tool_runner.conftest import Planner, Serve, Start, fault_of

SECRET = "swordfish"
BLOG = {
    "title": "AI",
    "sources": [{"url": "https://example.org"}, {"url": None}],
    "by.line": "ada",
    "1": "a name",
    "note": SECRET,
}


class Post:
    """A tool that records what it is called with, and a run whose artifacts it is given."""

    def __init__(self, planner: Planner, store: Store, run: str) -> None:
        self.planner, self.store, self.run = planner, store, run
        self.calls: list[dict[str, Any]] = []
        self.reads: list[str] = []
        """The artifacts that were read, once for each range."""
        self._count = 0

    async def on_call(self, message: Msg) -> None:
        """Take a call."""
        self.calls.append(ToolCall.model_validate_json(message.data).args)
        await message.respond(b"1")

    async def on_read(self, message: Msg) -> None:
        """See a request to the store."""
        self.reads.append(GetArtifact.model_validate_json(message.data).artifact_id)

    async def put(self, value: Any) -> ArtifactRef:
        """Store an artifact of the run."""
        blob = to_blob(value)
        about: dict[str, Any] = {"mime_type": blob.mime_type, "json_type": blob.json_type, "items": blob.items}
        return await self.store.client.put("default", blob.body, run=self.run, own_id="abc-123", **about)

    async def call(self, args: dict[str, Any], schema: dict[str, Any] | None = None) -> CallFinished:
        """Call it in the run."""
        self._count += 1
        given = {} if schema is None else {"input_schema": schema}
        spec = await self.planner.declare(ToolSpec(name="post", idempotent=True, **given))
        return await self.planner.call("post", args, spec=spec, run=self.run, call_id=f"{self._count}-0")


@pytest.fixture
async def post(planner: Planner, start_runner: Start, client: Client, store: Store) -> AsyncIterator[Post]:
    found = Post(planner, store, await planner.open_run())
    calls = await client.subscribe("tool.post", "post", cb=found.on_call)
    reads = await client.subscribe(subjects.artifact_get(), cb=found.on_read)
    await start_runner(ToolSpec(name="post", idempotent=True))
    yield found
    await calls.unsubscribe()
    await reads.unsubscribe()


def meant(ref: ArtifactRef, *path: str) -> dict[str, Any]:
    """An argument that stands for a part of an artifact."""
    return ref.model_copy(update={"path": list(path)}).model_dump(mode="json", exclude_none=True)


async def test_a_reference_stands_for_the_whole_or_for_a_part(post: Post) -> None:
    """With its type; an explicit null is a value. The artifact is read once for all of them."""
    ref = await post.put(BLOG)
    args = {
        "all": meant(ref),
        "title": meant(ref, "title"),
        "deep": [{"url": meant(ref, "sources", "0", "url")}, meant(ref, "sources", "1", "url")],
        "source": meant(ref, "sources", "0"),
        "dotted": meant(ref, "by.line"),
        "number": meant(ref, "1"),
        "plain": "abc-123",
    }
    finished = await post.call(args)
    assert finished.status == "succeeded"
    assert post.calls == [
        {
            "all": BLOG,
            "title": "AI",
            "deep": [{"url": "https://example.org"}, None],
            "source": {"url": "https://example.org"},
            "dotted": "ada",
            "number": "a name",
            "plain": "abc-123",
        }
    ]
    assert post.reads == [ref.artifact_id]


@pytest.mark.parametrize(
    ("path", "field"),
    [
        (("author", "name"), "author"),
        (("sources", "2"), "sources.2"),
        (("sources", "0", "title", "x"), "sources.0.title"),
        (("sources", "url"), "sources.url"),
        (("sources", "-1"), "sources.-1"),
        (("sources", "١"), "sources.١"),
        (("sources", "9" * 100), f"sources.{'9' * 100}"),
        (("title", "0"), "title.0"),
        (("sources", "1", "url", "host"), "sources.1.url.host"),
        (("x" * 300, "y"), "x" * 200 + "…"),
    ],
)
async def test_a_part_that_is_missing_fails_the_call(post: Post, path: tuple[str, ...], field: str) -> None:
    """The failure names the path up to what is missing, and the artifact as its tool named it. Nothing is called."""
    finished = await post.call({"fine": 1, "argument": meant(await post.put(BLOG), *path)})
    reason = f"the artifact abc-123 has no {field}, which the arguments refer to, so the tool was not called"
    assert fault_of(finished) == Fault(code="missing_output_field", reason=reason, retryable=False)
    assert not post.calls


async def test_complaints_about_values_of_artifacts_quote_none(post: Post) -> None:
    """They may be hidden from the model, which reads the failure."""
    ref = await post.put(BLOG)
    schema = {"type": "object", "properties": {"number": {"type": "integer"}, "kind": {"enum": ["a", "b"]}}}
    args = {"number": meant(ref, "note"), "kind": meant(ref, "note")}
    finished = await post.call(args, schema)
    assert fault_of(finished).code == "invalid_args"
    assert "number: " in fault_of(finished).reason
    assert "kind: " in fault_of(finished).reason
    assert SECRET not in json.dumps(finished.model_dump(mode="json"))
    assert not post.calls

    plainly = await post.call({"number": SECRET}, schema)
    assert SECRET in fault_of(plainly).reason, "the model's own arguments are quoted"


class Parsed(BaseModel):
    """What a tool read of a text that anybody may write."""

    body: Any = Field(default=None, json_schema_extra={"artifact": True})
    plain: Any = None


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("place", ["body", "plain"])
async def test_data_in_the_form_of_a_reference_is_data(
    planner: Planner, start_runner: Start, serve_tools: Serve, store: Store, *, place: str, inside: bool
) -> None:
    """Whoever follows what an outcome refers to comes to the tool's own data, not to somebody's artifact."""
    foreign = await store.client.put("default", b"swordfish", run="a" * 32, mime_type="text/plain", json_type="str")
    shaped = foreign.model_dump(mode="json", exclude_none=True)
    data = {"rows": [shaped]} if inside else shaped

    @tool(idempotent=True)
    async def parsed() -> Parsed:
        return Parsed.model_validate({place: data})

    serve_tools(parsed)
    await start_runner()
    finished = await planner.call("parsed", {})
    ref = ArtifactRef.model_validate(finished.artifacts["body" if place == "body" else "$"])
    assert ref.artifact_id != foreign.artifact_id
    stored = from_blob((await store.client.read("default", ref.artifact_id, limit=10_000))[1], ref)
    assert stored == (data if place == "body" else {"body": None, "plain": data})


@tool(idempotent=True)
def measure(
    file: Annotated[ArtifactRef, Field(json_schema_extra={BY_REFERENCE: True})], at: int, ctx: ToolContext
) -> Any:
    """Read an artifact from a place to its end."""
    pieces: list[bytes] = []
    while not pieces or len(pieces[-1]) == PART_BYTES:
        pieces.append(ctx.read_artifact(file, at + sum(map(len, pieces))).value)
    return {"digest": hashlib.sha256(b"".join(pieces)).hexdigest(), "pieces": len(pieces)}


@tool(idempotent=True)
async def pry(file: Annotated[ArtifactRef, Field(json_schema_extra={BY_REFERENCE: True})], ctx: ToolContext) -> int:
    """Read another artifact than the one that is given."""
    return len(await ctx.read_artifact(file.model_copy(update={"artifact_id": "0" * 32})))


async def test_a_tool_reads_what_fits_into_no_message(
    serve_tools: Serve, start_runner: Start, planner: Planner, store: Store
) -> None:
    """In ranges, of an artifact of the run that its arguments refer to, and of no other."""
    serve_tools(measure, pry)
    await start_runner()
    content = random.Random(1).randbytes((10 << 20) + 5)
    run = await planner.open_run()
    ref = await store.client.put("default", content, run=run, namespace="upload", mime_type="text/csv")
    file = ref.model_dump(mode="json", exclude_none=True)
    found = await planner.call("measure", {"file": file, "at": 5}, run=run)
    assert found.observation == {"digest": hashlib.sha256(content[5:]).hexdigest(), "pieces": 11}, found
    for call_id, name, given in (
        ("2-0", "pry", {"file": file}),
        ("3-0", "measure", {"file": file | {"artifact_id": "1" * 32}, "at": 0}),
    ):
        fault = fault_of(await planner.call(name, given, run=run, call_id=call_id))
        assert (fault.tool_code or fault.code) == "invalid_args", fault
