"""Both ways to a model over HTTP: what arrives, what it costs, how it fails, and that leaving closes the request."""

import asyncio
import logging

import pytest

from services.planner.conversation.encoding import Messages
from services.planner.models.errors import ModelFailed
from services.planner.models.types import Delta, Model, ModelRequest, Reply
from tests.support.model_paths import PATHS, models_on
from tests.support.model_server import USAGE, ModelServer, Say, words
from tests.support.model_shapes import FILTERED, TOO_LONG
from tests.support.needs import free_port
from tests.support.waiting import wait_until

SECRET = "the launch code is 4711"
SYSTEM = {"role": "system", "content": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]}
CLAUDE = "anthropic/claude-sonnet-4-5"
COUNTS = ("prompt_tokens", "completion_tokens", "cached_tokens")


def question(name: str = "openai/scripted", **more: object) -> ModelRequest:
    """A request whose prompt no error may repeat."""
    messages = [SYSTEM, {"role": "user", "content": SECRET}]
    return ModelRequest(model=name, messages=Messages.of(messages), **more)  # type: ignore[arg-type]


async def reply_of(model: Model, request: ModelRequest) -> tuple[list[Delta], Reply]:
    """All deltas, and the Reply that ends them."""
    *deltas, last = [piece async for piece in model.stream(request)]
    assert isinstance(last, Reply)
    return [piece for piece in deltas if isinstance(piece, Delta)], last


async def failure_of(model: Model, request: ModelRequest) -> ModelFailed:
    with pytest.raises(ModelFailed) as caught:
        await reply_of(model, request)
    return caught.value


async def test_schemas_may_hold_long_integers(server: ModelServer, model: Model) -> None:
    """The model receives all digits."""
    server.say(Say(text="Hello."))
    parameters = {"type": "object", "properties": {"wei": {"type": "integer", "maximum": 2**256 - 1}}}
    tool = {"type": "function", "function": {"name": "pay", "parameters": parameters}}
    await reply_of(model, question(tools=[tool]))
    assert server.ledger[0].body["tools"][0]["function"]["parameters"] == parameters


@pytest.mark.parametrize("name", ["openai/scripted", "hosted_vllm/scripted", CLAUDE])
async def test_a_reply_streams_and_adds_up(server: ModelServer, model: Model, name: str) -> None:
    """Deltas come while the reply is written; the Reply is their concatenation."""
    server.say(Say(text=words(40), reasoning="first this, then that", pause_s=0.002))
    deltas, reply = await reply_of(model, question(name))
    assert len(deltas) > 1
    assert reply.text == "".join(delta.text for delta in deltas) == words(40)
    assert reply.reasoning == "".join(delta.reasoning for delta in deltas) == "first this, then that"
    assert reply.finish_reason == "stop"
    assert reply.usage.model_calls == 1
    assert {name: getattr(reply.usage, name) for name in COUNTS} == {name: USAGE[name] for name in COUNTS}
    assert not reply.usage.estimated


async def test_a_price_is_known_or_unknown_never_zero_by_ignorance(server: ModelServer, model: Model) -> None:
    """An unknown model has no price."""
    server.say(Say(text="yes"))
    assert (await reply_of(model, question()))[1].usage.cost_usd is None
    known = (await reply_of(model, question(CLAUDE)))[1].usage.cost_usd
    assert known is not None
    assert known > 0


async def test_a_count_that_nobody_made_is_marked(server: ModelServer, model: Model) -> None:
    """Without the provider's usage there is an estimate of about four characters a token."""
    server.say(Say(text=words(100), usage=None))
    usage = (await reply_of(model, question()))[1].usage
    assert usage.estimated
    assert usage.completion_tokens == pytest.approx(len(words(100)) / 4, abs=1)
    assert usage.prompt_tokens > 0


async def test_what_is_asked_for_is_sent_and_nothing_else(server: ModelServer, model: Model) -> None:
    """Options are sent where they are set; cache marks only to providers that know them."""
    server.say(Say(text="yes"))
    await reply_of(model, question(max_tokens=99, response_format={"type": "json_object"}))
    body = server.ledger[-1].body
    assert body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": SECRET}]
    assert (body["max_tokens"], body["response_format"]) == (99, {"type": "json_object"})
    await reply_of(model, question())
    assert set(server.ledger[-1].body) == {"model", "messages", "stream", "stream_options"}


async def test_cache_marks_reach_a_provider_that_knows_them(server: ModelServer, model: Model) -> None:
    """On the stable prefix, and at the end, so that the next turn finds this one cached."""
    server.say(Say(text="yes"))
    await reply_of(model, question(CLAUDE))
    body = server.ledger[-1].body
    assert body["system"][0]["cache_control"] == {"type": "ephemeral"}
    assert body["messages"][-1]["content"][-1]["cache_control"] == {"type": "ephemeral"}


async def test_native_tool_calls_are_put_together(server: ModelServer, model: Model) -> None:
    """A reply of tool calls alone is not empty."""
    calls = [{"name": "search", "arguments": '{"query": "nats"}'}, {"name": "clock", "arguments": "{}"}]
    server.say(Say(tool_calls=calls))
    _, reply = await reply_of(model, question())
    assert [call["function"] for call in reply.tool_calls] == calls


HELPS = {"again": (True, True), "another model": (False, True), "nothing": (False, False)}


@pytest.mark.parametrize(
    ("say", "code", "helps"),
    [
        (Say(status=429), "model_rate_limited", "again"),
        (Say(status=500), "model_failed", "again"),
        (Say(status=503), "model_failed", "again"),
        (Say(status=401), "model_failed", "another model"),
        (Say(status=404), "model_failed", "another model"),
        (Say(status=400), "model_refused", "nothing"),
        (Say(status=400, error=FILTERED), "model_refused", "nothing"),
        (Say(status=400, error=TOO_LONG), "context_too_long", "nothing"),
        (Say(text=""), "model_failed", "again"),
        (Say(text="   "), "model_failed", "again"),
        (Say(body="<html>a gateway</html>"), "model_failed", "again"),
        (Say(text="", finish_reason="content_filter"), "model_refused", "nothing"),
        (Say(text="", finish_reason="length"), "model_failed", "another model"),
        (Say(text=words(9), cut_after=1), "model_failed", "again"),
    ],
)
async def test_every_failure_has_a_code(server: ModelServer, model: Model, say: Say, code: str, helps: str) -> None:
    """One request each: asking again is not this file's business."""
    server.say(say)
    failure = await failure_of(model, question())
    assert failure.fault.code == code
    assert (failure.fault.retryable, failure.elsewhere) == HELPS[helps]
    assert failure.after_output is bool(say.text.isspace())
    assert len(server.ledger) == 1


async def test_a_page_instead_of_a_reply_is_named(server: ModelServer, model: Model) -> None:
    """By its type and its first words: an address may be that of a web page, or a proxy may have answered."""
    page = "<html><head><style>p {color: red}</style><title>Sign in</title></head><body>\n<p>to continue</p>"
    server.say(Say(body=f"{page} with your account{' for ever' * 1000} {SECRET}"))
    reason = (await failure_of(model, question())).fault.reason
    assert reason.startswith(
        "the server of openai/scripted sent text/html ('Sign in to continue with your account for ever"
    )
    assert "instead of a completion: check its address (RUNWIRE_MODEL_SERVERS" in reason
    assert len(reason) < 250


@pytest.mark.parametrize(
    "say", [Say(text=words(20), cut_after=6), Say(text=words(20), garbage_after=6), Say(text=words(20), stall_after=6)]
)
async def test_a_broken_stream_says_that_it_had_begun(server: ModelServer, model: Model, say: Say) -> None:
    """A stream may be cut, hold garbage, or stop."""
    server.say(say)
    failure = await failure_of(model, question(timeout_s=1.0))
    assert failure.after_output
    assert failure.fault.retryable


async def test_retry_after_of_a_provider_is_kept(server: ModelServer, model: Model) -> None:
    """In seconds, from the header; the reason names it for people."""
    server.say(Say(status=429, headers={"Retry-After": "7"}))
    failure = await failure_of(model, question())
    assert failure.retry_after_s == 7
    assert "asks for a pause of 7 s" in failure.fault.reason


NO_KEY = {"openai/gpt-4o": "OPENAI", "anthropic/claude-sonnet-4-6": "ANTHROPIC", "gemini/gemini-flash-latest": "GEMINI"}
NO_URL = "the address of openai/scripted is no http URL: see RUNWIRE_MODEL_SERVERS, else RUNWIRE_MODEL_API_BASE"
NO_PROVIDER = "'nonsense' names no provider that LiteLLM knows: write it as provider/model"


@pytest.mark.parametrize(
    ("name", "address", "said"),
    [
        ("nonsense", None, NO_PROVIDER),
        *((name, None, f"there is no API key for {name}: set {key}_API_KEY") for name, key in NO_KEY.items()),
        ("hosted_vllm/nobody", "http://127.0.0.1:{port}/v1", "hosted_vllm/nobody cannot be reached"),
        ("openai/scripted", "localhost:9/v1", NO_URL),
    ],
)
@pytest.mark.parametrize("path", PATHS)
async def test_what_a_newcomer_forgets_is_named(
    path: str, name: str, address: str | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No provider, no key, no server, no URL: none of these is reported as a failure of the server."""
    for provider in (*NO_KEY.values(), "GOOGLE"):
        monkeypatch.delenv(f"{provider}_API_KEY", raising=False)
        monkeypatch.delenv(f"{provider}_API_BASE", raising=False)
    model = models_on(path, address and address.format(port=free_port()))
    failure = await failure_of(model, question(name))
    await model.aclose()
    assert failure.fault.reason.startswith(said)
    assert failure.fault.code == "model_failed"
    assert (failure.fault.retryable, failure.elsewhere) == (name == "hosted_vllm/nobody", True)
    assert "500" not in failure.fault.reason
    assert SECRET not in failure.fault.reason


@pytest.mark.parametrize(
    "say", [Say(status=400), Say(status=401), Say(status=500), Say(text=words(9), garbage_after=3)]
)
async def test_no_text_of_the_provider_gets_out(
    server: ModelServer, model: Model, caplog: pytest.LogCaptureFixture, say: Say
) -> None:
    """Neither in the fault, nor in what hangs on the exception, nor in a log at any level."""
    error = {"message": f"cannot handle: {SECRET} (key sk-abcdef)", "type": "server_error", "code": "sk-abcdef"}
    server.say(Say(**{**vars(say), "error": error}))
    with caplog.at_level(logging.DEBUG):
        failure = await failure_of(model, question())
    assert failure.__cause__ is failure.__context__ is None
    for said in (str(failure), failure.fault.reason, caplog.text):
        assert SECRET not in said
        assert "sk-abcdef" not in said
        assert "Traceback" not in said


async def test_prompts_are_not_logged_at_any_level(
    server: ModelServer, model: Model, caplog: pytest.LogCaptureFixture
) -> None:
    """LiteLLM's loggers print prompts with their images at DEBUG; they are pinned."""
    server.say(Say(text="yes"))
    with caplog.at_level(logging.DEBUG):
        await reply_of(model, question())
    assert SECRET not in caplog.text
    assert not logging.getLogger("LiteLLM").handlers


async def test_pauses_and_slowness_have_limits_of_their_own(server: ModelServer, model: Model) -> None:
    """A slow reply keeps the limit on pauses, and exceeds the one on the whole."""
    server.say(Say(text=words(60), pause_s=0.03))
    await reply_of(model, question(timeout_s=1.5))
    failure = await failure_of(model, question(timeout_s=1.5, total_s=0.5))
    assert "did not finish within 0.5 s" in failure.fault.reason
    server.reset()
    server.say(Say(silent=True))
    assert "said nothing for 0.5 s" in (await failure_of(model, question(timeout_s=0.5))).fault.reason
    await wait_until(lambda: server.ledger[-1].ended == "gone", what="the provider saw the request closed")


@pytest.mark.parametrize("name", ["openai/scripted", "hosted_vllm/scripted", CLAUDE])
async def test_leaving_a_stream_closes_the_request(server: ModelServer, model: Model, name: str) -> None:
    """The provider stops generating, and so stops costing."""
    server.say(Say(text=words(300), stall_after=6))
    pieces = model.stream(question(name))
    assert isinstance(await anext(pieces), Delta)
    await pieces.aclose()
    await wait_until(lambda: server.ledger[-1].ended == "gone", what="the provider saw the request closed")


@pytest.mark.parametrize("say", [Say(silent=True), Say(text=words(9), stall_after=4)])
async def test_cancelling_closes_the_request(server: ModelServer, model: Model, say: Say) -> None:
    """Before the first word and in the middle."""
    server.say(say)
    task = asyncio.create_task(reply_of(model, question()))
    await wait_until(
        lambda: server.ledger and server.ledger[-1].sent >= (say.stall_after or 0), what="the provider is asked"
    )
    task.cancel()
    await wait_until(lambda: server.ledger[-1].ended == "gone", what="the provider saw the request closed")
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("name", ["openai/scripted", "hosted_vllm/scripted", CLAUDE])
@pytest.mark.parametrize("status", [408, 409, 422, 429, 500, 503])
async def test_nothing_is_sent_twice(server: ModelServer, model: Model, name: str, status: int) -> None:
    """Neither by LiteLLM nor by its clients, which by default repeat some; the failure is the provider's."""
    server.say(Say(status=status))
    failure = await failure_of(model, question(name, reasoning_effort="low"))
    assert failure.status == status
    assert len(server.ledger) == 1


async def test_one_speaker_at_a_time(server: ModelServer, model: Model) -> None:
    """Messages in a row by the user become one: some chat templates refuse them otherwise."""
    server.say(Say(text="yes"))
    said = [
        {"role": role, "content": role[0] + str(number)} for number, role in enumerate(("user", "user", "assistant"))
    ]
    await reply_of(model, ModelRequest(model="openai/scripted", messages=Messages.of([SYSTEM, *said])))
    assert server.ledger[-1].body["messages"][1:] == [{"role": "user", "content": "u0\n\nu1"}, said[2]]


async def test_many_streams_at_once_do_not_mix(server: ModelServer, model: Model) -> None:
    """Each conversation gets its own script."""
    for number in range(20):
        server.say(Say(text=f"reply {number}"), marker=f"question-{number}-")
    asked = [Messages.of([{"role": "user", "content": f"question-{number}-"}]) for number in range(20)]
    requests = [ModelRequest(model="openai/scripted", messages=messages) for messages in asked]
    replies = await asyncio.gather(*(reply_of(model, request) for request in requests))
    assert [reply.text for _, reply in replies] == [f"reply {number}" for number in range(20)]
