"""What a server refuses is left out of the next request or changed, and the right thing is blamed."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from services.planner.conversation.encoding import OPAQUE, Messages
from services.planner.models.errors import ModelFailed
from services.planner.models.refusals import CHANGES, WithoutRefusedFields
from services.planner.models.types import Model, ModelRequest, Reply
from tests.support.model_paths import PATHS, models_on
from tests.support.model_server import ModelServer, Say

ASKS = {"role": "user", "content": "?"}
CALLS = {
    "role": "assistant",
    "tool_calls": [{"id": "c00010001", "type": "function", "function": {"name": "look", "arguments": '{"q": "x"}'}}],
}
RESULT = {"role": "tool", "tool_call_id": "c00010001", "content": "found x"}
NOTE = {"role": "user", "content": "this is your last decision"}
REQUEST = ModelRequest(model="openai/scripted", messages=Messages.of([ASKS]), response_format={"type": "json_object"})


def function(name: str, **schema: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", **schema}}}


LOOK = function("look", properties={"q": {"type": "string"}})
ODD = function("odd", properties={"day": {"type": "string", "pattern": r"\Z"}}, required=["day"])
FLAT_ODD = function("odd", properties={"day": {"type": "string"}}, required=["day"])
NATIVE = ModelRequest(
    model="openai/scripted",
    messages=Messages.of([{"role": "system", "content": "Help."}, ASKS, CALLS, RESULT, NOTE]),
    tools=[function("final_response", properties={"answer": {"type": "string"}}), LOOK, ODD],
    tool_choice="required",
)


@pytest.fixture(params=PATHS)
async def model(request: pytest.FixtureRequest, server: ModelServer) -> AsyncIterator[Model]:
    server.reset()
    models = models_on(request.param, server.url)
    yield WithoutRefusedFields(models)
    await models.aclose()


def refuse(words: str, status: int = 400, **more: Any) -> Say:
    return Say(status=status, error={"message": words, "type": "invalid_request_error", **more})


async def outcome(model: Model, request: ModelRequest = REQUEST) -> str | tuple[str, ...]:
    """The code of the failure, which holds none of the server's words; or the warnings of the reply."""
    try:
        async for piece in model.stream(request):
            if isinstance(piece, Reply):
                return piece.warnings
    except ModelFailed as error:
        return error.fault.code + error.said
    raise AssertionError("no reply")


def sent_with_format(server: ModelServer) -> list[bool]:
    return ["response_format" in seen.body for seen in server.ledger]


async def test_a_refused_field_is_left_out_from_then_on(server: ModelServer, model: Model) -> None:
    """Without a word of the server the format is tried first: the next request leaves it out, and all after it."""
    server.say(Say(status=400), Say(text="yes"))
    assert [await outcome(model) for _ in range(3)] == ["response_format_refused", (), ()]
    assert sent_with_format(server) == [True, False, False]


async def test_a_guess_that_did_not_help_is_forgotten(server: ModelServer, model: Model) -> None:
    """Refused without the format too: other requests have it again."""
    server.say(Say(status=400), Say(status=400), Say(text="yes"))
    assert [await outcome(model) for _ in range(3)] == ["response_format_refused", "model_refused", ()]
    assert sent_with_format(server) == [True, False, True]


@pytest.mark.parametrize(
    "words",
    [
        "The model `nonsense` does not exist or you do not have access to it.",
        "Invalid model name passed in model=nonsense",
        "Your credit balance is too low to access the API",
        "API key not valid. Please pass a valid API key.",
        "Invalid image data",
        "max_tokens is too large: 300000",
        "User location is not supported for the API use.",
    ],
)
async def test_what_no_change_mends_is_asked_once(server: ModelServer, model: Model, words: str) -> None:
    """The server says that no field is to blame."""
    server.say(refuse(words))
    assert await outcome(model) not in {"response_format_refused", "field_refused"}


@pytest.mark.parametrize(
    ("request_", "words", "gone"),
    [
        (REQUEST, "Extra inputs are not permitted, field: 'stream_options'", {"stream_options"}),
        (REQUEST, "'response_format.type' must be 'json_schema' or 'text'", {"response_format"}),
        (replace(NATIVE, tool_choice="auto"), "This model does not take tool_choice", {"tool_choice"}),
    ],
)
async def test_what_the_server_names_is_left_out(
    server: ModelServer, model: Model, request_: ModelRequest, words: str, gone: set[str]
) -> None:
    """And nothing else."""
    server.say(refuse(words, 422), Say(text="yes"))
    assert [await outcome(model, request_) for _ in range(2)][1] == ()
    first, second = (seen.body for seen in server.ledger)
    assert set(first) - set(second) == gone


async def test_a_field_of_which_the_error_says_only_the_name_is_blamed(server: ModelServer, model: Model) -> None:
    """In `detail`, as FastAPI says it."""
    body = b'{"detail": [{"loc": ["body", "stream_options"], "msg": "extra fields not permitted"}]}'
    server.say(Say(status=422, blob=body), Say(text="yes"))
    assert [await outcome(model) for _ in range(2)] == ["field_refused", ()]
    assert "stream_options" not in server.ledger[1].body


async def test_a_forced_call_becomes_a_free_one_and_then_no_word_of_it(server: ModelServer, model: Model) -> None:
    """One step after another, as long as the server minds."""
    minds = refuse("Thinking mode does not support this tool_choice")
    server.say(minds, minds, Say(text="yes"))
    assert [await outcome(model, NATIVE) for _ in range(3)] == ["field_refused", "field_refused", ()]
    assert [seen.body.get("tool_choice") for seen in server.ledger] == ["required", "auto", None]


ALTERNATING = ["system", "user", "assistant", "tool", "assistant", "user"]


@pytest.mark.parametrize(
    ("words", "status", "roles"),
    [
        ("Unexpected role 'user' after role 'tool'", 400, ALTERNATING),
        ("Conversation roles must alternate user/assistant/user/assistant", 500, ALTERNATING),
        ("System role not supported", 400, ["user", "assistant", "tool", "user"]),
        ("model does not support tools", 400, ["system", "user", "assistant", "user"]),
    ],
)
async def test_messages_are_written_as_the_server_takes_them(
    server: ModelServer, model: Model, words: str, status: int, roles: list[str]
) -> None:
    """Their texts stay, and the note comes last."""
    server.say(refuse(words, status), Say(text="yes"))
    assert [await outcome(model, NATIVE) for _ in range(2)][1] == ()
    messages = server.ledger[1].body["messages"]
    assert [message["role"] for message in messages] == roles
    assert "Help." in str(messages[0])
    assert messages[-1]["content"].endswith("this is your last decision")
    assert "found x" in server.ledger[1].text


async def test_a_model_without_functions_is_told_of_them_in_words(server: ModelServer, model: Model) -> None:
    """It calls one by a JSON object; earlier calls look like that."""
    server.say(refuse("registry.example/model does not support tools"), Say(text="yes"))
    assert [await outcome(model, NATIVE) for _ in range(2)] == ["field_refused", ()]
    body = server.ledger[1].body
    assert not {"tools", "tool_choice"} & set(body)
    assert '"next_node": the name of the function' in body["messages"][0]["content"]
    assert body["messages"][2]["content"] == '{"next_node": "look", "args": {"q": "x"}}'


@pytest.mark.parametrize("words", ["Invalid schema for function 'odd': pattern", "tools[2].parameters is invalid"])
async def test_a_tool_that_is_refused_is_simplified_and_then_left_out(
    server: ModelServer, model: Model, words: str
) -> None:
    """By its name or its number. The run is told of it."""
    minds = refuse(words)
    server.say(minds, minds, Say(text="yes"))
    assert [await outcome(model, NATIVE) for _ in range(3)] == [
        "field_refused",
        "field_refused",
        ("the tool odd was left out: the provider of openai/scripted refuses its schema",),
    ]
    [first, second, third] = [seen.body["tools"] for seen in server.ledger]
    assert [tool["function"]["name"] for tool in first] == ["final_response", "look", "odd"]
    assert second[2]["function"]["parameters"] == FLAT_ODD["function"]["parameters"]
    assert third == first[:2]


async def test_all_tools_are_simplified_where_none_is_named(server: ModelServer, model: Model) -> None:
    """What is no tool stays as it is."""
    server.say(refuse("a JSON schema could not be converted"), Say(text="yes"))
    assert [await outcome(model, NATIVE) for _ in range(2)] == ["field_refused", ()]
    assert [tool["function"]["parameters"] for tool in server.ledger[1].body["tools"]] == [
        NATIVE.tools[0]["function"]["parameters"] if NATIVE.tools else None,
        LOOK["function"]["parameters"],
        FLAT_ODD["function"]["parameters"],
    ]


@pytest.mark.parametrize(
    ("words", "owner", "added"),
    [
        ("Function call is missing a thought_signature", "openai/other", "extra_content"),
        ("Missing `reasoning_content` field in the assistant message", "openai/other", "reasoning_content"),
        ("property 'reasoning_content' is unsupported", "openai/scripted", ""),
    ],
)
async def test_calls_have_the_opaque_fields_that_a_server_takes(
    server: ModelServer, words: str, owner: str, added: str
) -> None:
    """Those of another model are replaced; its own are left out if it does not take them."""
    server.reset()
    models = models_on("directly", server.url)
    server.say(refuse(words), Say(text="yes"))
    opaque = {"model": owner, "message": {"reasoning_content": "Let me."}, "calls": []}
    request = replace(NATIVE, messages=Messages.of([ASKS, {**CALLS, OPAQUE: opaque}, RESULT]))
    model = WithoutRefusedFields(models)
    assert [await outcome(model, request) for _ in range(2)] == ["field_refused", ()]
    message = server.ledger[1].body["messages"][1]
    assert {*message, *message["tool_calls"][0]} - {*CALLS, *CALLS["tool_calls"][0]} == {added} - {""}
    assert "Let me." not in server.ledger[1].text
    await models.aclose()


async def test_a_conversation_that_is_too_long_is_no_field(server: ModelServer, model: Model) -> None:
    """Even where its error names one."""
    server.say(refuse("This model's maximum context length is 10 tokens, see response_format"))
    assert await outcome(model) == "context_too_long"


def test_a_model_of_mistral_is_never_sent_a_user_after_a_tool() -> None:
    """Its documentation says so, so it need not refuse first."""
    model = WithoutRefusedFields(models_on("directly", ""))
    changed, made = model._changed(replace(NATIVE, model="mistral/small"))
    assert [change.name for change in made] == [CHANGES[0].name]
    assert [message["role"] for message in changed.messages.objects()][-3:] == ["tool", "assistant", "user"]
