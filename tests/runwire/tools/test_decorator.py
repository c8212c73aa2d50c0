"""Writing a tool: a function with types. Read it from the top."""

import asyncio
import base64
import json
import re
import warnings
from collections.abc import Awaitable
from datetime import UTC, datetime
from enum import Enum
from pathlib import PurePosixPath
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict, Field

from runwire import ToolContext, ToolError, tool
from runwire.errors import UnsupportedSignature
from runwire.testing import RecordingContext
from runwire.tools.context import encode_piece


class SalesArgs(BaseModel):
    """What to analyse."""

    region: str = Field(description="as in the report")
    year: int = 2024


class SalesResult(BaseModel):
    """What came out."""

    model_config = ConfigDict(json_schema_extra={"produces_sources": True})

    total: float
    chart: dict[str, Any] = Field(json_schema_extra={"artifact": True, "stream": True})


@tool(desc="Analyse sales and draw a chart", tags=["analytics"], idempotent=True, timeout_s=12, side_effects="read")
async def analyze_sales(args: SalesArgs, ctx: ToolContext) -> SalesResult:
    """Not shown, since there is a description."""
    await ctx.progress("reading", 0.5)
    for bars in (1, 2):
        await ctx.emit_artifact(stream_id="chart", chunk={"bars": bars}, done=bars == 2, artifact_type="echarts")
    ctx.logger.info("analysed %s", args.region)
    return SalesResult(total=1.5, chart={"bars": 2, "by": ctx.context.get("user")})


async def test_a_tool_is_tested_as_a_function() -> None:
    """Without a server; a context records the reports."""
    context = RecordingContext(context={"user": "ada"})

    result = await analyze_sales(SalesArgs(region="North"), context)

    assert result.chart == {"bars": 2, "by": "ada"}
    assert context.progressed == [("reading", 0.5)]
    assert context.pieces == {"chart": [{"bars": 1}, {"bars": 2}]}
    assert context.finished == {"chart"}
    assert (analyze_sales.__name__, repr(analyze_sales)) == ("analyze_sales", "<tool analyze_sales 1.0.0>")


def test_the_types_become_the_specification() -> None:
    """Fields, descriptions, defaults and annotations."""
    spec = analyze_sales.spec

    assert spec.name == "analyze_sales"
    assert spec.description == "Analyse sales and draw a chart"
    assert (spec.tags, spec.idempotent, spec.timeout_s, spec.side_effects, spec.concurrency) == (
        ["analytics"],
        True,
        12,
        "read",
        64,
    )
    assert spec.input_schema["properties"]["region"] == {
        "description": "as in the report",
        "title": "Region",
        "type": "string",
    }
    assert spec.input_schema["required"] == ["region"]
    assert spec.output_schema is not None
    assert spec.output_schema["produces_sources"] is True
    assert spec.output_schema["properties"]["chart"]["artifact"] is True


@pytest.mark.parametrize(
    ("returned", "is_said"), [(dict, True), (dict[str, Any], True), (dict[str, int], False), (list[str], False)]
)
def test_a_result_without_fields_is_named(returned: Any, *, is_said: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Plans cannot refer to it."""

    def listing() -> Any:
        """List it."""

    listing.__annotations__["return"] = returned
    tool(listing)
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["listing"] * is_said


def test_plain_parameters_and_a_docstring_are_enough() -> None:
    """Each parameter is a field; others than these are refused."""

    @tool
    def repeat(text: str, times: Annotated[int, Field(ge=1, le=5, description="how often")] = 2) -> list[str]:
        """Say something several times."""
        return [text] * times

    assert repeat("a") == ["a", "a"]
    assert repeat.spec.description == "Say something several times."
    assert repeat.spec.input_schema["additionalProperties"] is False
    assert repeat.spec.input_schema["properties"]["times"]["description"] == "how often"
    assert repeat.spec.output_schema == {"items": {"type": "string"}, "type": "array"}
    with pytest.raises(
        ToolError, match=r"^text: Field required; times: Input should be less than or equal to 5; loud: "
    ) as refused:
        repeat.check({"times": 6, "loud": True})
    assert refused.value.code == "invalid_args"


class Colour(Enum):
    """A choice."""

    RED = "red"


async def test_run_does_what_a_server_does() -> None:
    """JSON goes in and comes out; plain functions run in a thread, and may return something to await."""

    @tool(name="paint-it")
    def paint(colour: Colour, ctx: ToolContext) -> dict[str, Any]:
        ctx.progress(f"painting {colour.value}")
        return {"colour": colour, "n": 1}

    async def later() -> int:
        await asyncio.sleep(0)
        return 7

    @tool
    def promise() -> Awaitable[int]:
        return later()

    context = RecordingContext()
    assert await paint.run({"colour": "red"}, context) == b'{"colour":"red","n":1}'
    assert context.progressed == [("painting red", None)]
    assert paint.name == "paint-it"
    assert await promise.run({}, context) == b"7"
    assert promise.spec.output_schema == {"type": "integer"}


class Scan(BaseModel):
    """An image, and what it shows."""

    image: bytes = Field(json_schema_extra={"artifact": True}, alias="Image")
    at: datetime
    mean: float


async def test_bytes_are_sent_as_base64() -> None:
    """Without a setting of pydantic; everything else is written as usual."""
    body = bytes(range(256))

    @tool
    async def scan() -> list[Scan]:
        return [Scan(Image=body, at=datetime(2026, 5, 1, tzinfo=UTC), mean=float("nan"))]

    (found,) = json.loads(await scan.run({}, RecordingContext()))
    assert base64.urlsafe_b64decode(found.pop("Image")) == body
    assert found == {"at": "2026-05-01T00:00:00Z", "mean": None}
    piece = json.loads(encode_piece("s", 0, body, done=True, artifact_type="wave"))
    assert (base64.b64decode(piece["chunk"]), piece["artifact_type"]) == (body, "bytes")
    assert json.loads(encode_piece("s", 0, body, done=True, artifact_type="audio/wav"))["artifact_type"] == "audio/wav"


async def test_a_result_that_does_not_fit_its_type_is_refused() -> None:
    """Before it is sent."""

    @tool
    async def mistyped() -> int:
        return "seven"  # type: ignore[return-value]  # that is the mistake

    @tool
    async def keep_bytes() -> Any:
        return b"\xff"

    for wrong, advice in ((mistyped, "integer"), (keep_bytes, "declare bytes as `bytes`")):
        with pytest.raises(ToolError, match=advice) as refused:
            await wrong.run({}, RecordingContext())
        assert refused.value.code == "invalid_result"


class Photo(BaseModel):
    """A model with bytes."""

    name: str
    data: bytes


async def test_what_json_has_no_word_for_is_sent_as_the_nearest_text() -> None:
    """A path, a view of bytes; halves of a character are joined, or replaced: the call was made and must not fail."""

    @tool
    async def values() -> Any:
        return [PurePosixPath("/a/b"), memoryview(b"c"), "\ud83c\udf75", "d\ud83c", float("nan")]

    @tool
    async def photo() -> Photo:
        return Photo.model_construct(name="\udf75", data=b"\xff")

    sent = json.loads(await values.run({}, RecordingContext()))
    assert sent == ["/a/b", "c", "\U0001f375", "d\ufffd", None]
    assert json.loads(await photo.run({}, RecordingContext())) == {"name": "\ufffd", "data": "_w=="}


@pytest.mark.parametrize("name", ["model_extra", "model_config", "model_dump", "json", "_x", "__config__"])
async def test_a_parameter_may_have_any_name(name: str) -> None:
    """Also one that means something to pydantic; its errors name it."""
    space: dict[str, Any] = {}
    exec(f"async def probe({name}: int, other: int = 1) -> int:\n return {name}", space)  # noqa: S102, names vary
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        probe = tool(space["probe"])
    assert probe.spec.input_schema["required"] == [name]
    assert await probe.run({name: 7}, RecordingContext()) == b"7"
    with pytest.raises(ToolError, match=f"^{name}: "):
        probe.check({name: "x"})


class Plot(BaseModel):
    """A model with an artifact."""

    points: list[int] = Field(json_schema_extra={"artifact": True})


class Cover(Plot):
    """And with bytes."""

    picture: bytes = b""


async def test_a_result_changed_after_its_validation_is_not_shown() -> None:
    """Pydantic's warnings have values, which may be for people only; the tool runner checks what arrives."""

    @tool
    async def plot() -> Plot:
        found = Plot(points=[1])
        found.points = "canary"  # type: ignore[assignment]  # that is the mistake
        return found

    @tool
    async def cover() -> Cover:
        return Cover.model_construct(points="canary")  # type: ignore[arg-type]  # that is the mistake

    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        assert [json.loads(await each.run({}, RecordingContext()))["points"] for each in (plot, cover)] == [
            "canary",
            "canary",
        ]
    assert not shown


def test_what_cannot_be_described_is_refused_at_once() -> None:
    """The error names the function and the parameter."""

    def many(*args: int) -> None: ...

    def options(**options: int) -> None: ...

    def unknown(thing: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821, that is the mistake

    class Opaque:
        pass

    def opaque(thing: Opaque) -> None: ...

    for function, word in ((many, "'args'"), (options, "'options'"), (unknown, "'Nowhere'"), (opaque, "arguments")):
        with pytest.raises(UnsupportedSignature, match=f"^{function.__name__}: .*{word}"):
            tool(function)


@pytest.mark.parametrize("name", ["a.b", "a b", "", "x" * 65, "größe"])
def test_a_name_is_part_of_a_subject(name: str) -> None:
    """Letters, digits, underscore and hyphen."""
    with pytest.raises(ValueError, match="tool name"):
        tool(name=name or " ")(lambda: None)


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"timeout_s": 0}, "timeout_s=0 is not allowed; it must be a number of seconds above 0 and at most 86400"),
        ({"concurrency": 0}, "concurrency=0 is not allowed; it must be a whole number from 1 to 10000"),
        (
            {"side_effects": "some"},
            "side_effects='some' is not allowed; it must be 'none', 'read', 'write' or 'external'",
        ),
        ({"tags": "math"}, "tags='math' is not allowed; it must be a list of texts"),
        ({"idempotent": "perhaps"}, "idempotent='perhaps' is not allowed; it must be True or False"),
        ({"desc": 3}, "desc=3 is not allowed; it must be a text"),
    ],
)
def test_a_wrong_flag_is_named_with_what_is_allowed(flags: dict[str, Any], text: str) -> None:
    """In one sentence."""
    with pytest.raises(ValueError, match=f"^tool x: {re.escape(text)}") as refused:
        tool(name="x", **flags)(lambda: None)
    assert "\n" not in str(refused.value)


def test_a_piece_is_checked_where_it_is_emitted() -> None:
    """Too large, or not JSON: the author learns it in the test."""
    context = RecordingContext()
    for chunk in ("x" * 200_000, object()):
        with pytest.raises(ValueError, match="chunk of 's'"):
            context.emit_artifact(stream_id="s", chunk=chunk)
    assert context.pieces == {"s": []}
