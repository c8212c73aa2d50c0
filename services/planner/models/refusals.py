"""What may be left out of a request, or changed in it, when a server refuses it with 400 or 422: one table.

Rule 1: the server's words say what is to blame; the first row of the table that they match and that changes the request
counts. A tool is blamed by its name or its number. Without such words, the rows that servers refuse most often are
tried. What is not sent (`seed`, `parallel_tool_calls`) cannot be refused.
Rule 2: a refused request is a failed attempt with a code of its own; the run asks again at once (`run.turn.decide`).
Rule 3: what was learnt is kept for the model until the process ends. A model's name stands for one address. A guess
that did not help is forgotten.
Rule 4: a conversation that is too long, and a refused content, are never mended here: they have codes of their own.
"""

import re
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from contracts.runs.decisions import RESERVED
from contracts.wire.faults import Code
from services.planner.conversation import native, texts
from services.planner.conversation.encoding import OPAQUE, Message, Messages, compact
from services.planner.conversation.messages import says
from services.planner.models.errors import ModelFailed
from services.planner.models.providers import provider_of
from services.planner.models.types import Delta, Model, ModelRequest, Reply
from services.shared import metrics

_UNSURE = frozenset({400, 422})
_TEMPLATE_FAILED = 500
"""Of llama.cpp and others, where a chat template does not take the roles of the messages."""
_HAS_READ: Message = {"role": "assistant", "content": "I have read the results."}
_BEGINS: Message = {"role": "user", "content": "(The conversation begins.)"}
_OF_TOOLS = r"schema|function|tool|parameters|declaration"
_OF_CHOICE = r"tool[_ ]choice"
_OF_SCHEMAS = r"schema|parameters|declaration"
_NUMBER = re.compile(r"(?:tools|functions|function_?declarations)(?:\[|\.)(\d+)")

_NO_FIELD = re.compile(
    r"\bmodels?\b.{0,60}(?:not (?:found|exist|available|allowed|enabled)|n't exist|unknown|invalid|retired|deprecated)"
    r"|(?:unknown|invalid|no such|unrecognized) model|api[ _-]?key|credential|account|organi[sz]ation|project"
    r"|billing|credits?\b|balance|quota|payment|subscription|\bimages?\b|\burl\b|base64"
    r"|\bfiles?\b|max_(?:completion_)?tokens|region|location|country"
)
"""Words for what no change of the table mends: the request is not made again."""


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that a request may do without.

    `blamed`: a pattern of what a server that refuses it says, in lower case. `made`: returns the changed request, or
    the same one, if nothing is to change. `is_guessed`: tried where a server says nothing. `warning`: for the run.
    """

    name: str
    blamed: str
    made: Callable[[ModelRequest], ModelRequest]
    is_guessed: bool = False
    code: Code = "field_refused"
    warning: str = ""


def _without(field: str, only: Any = None, instead: Any = None) -> Callable[[ModelRequest], ModelRequest]:
    """Return what sets a field that is set (to `only`, where that is given) to `instead`."""

    def made(request: ModelRequest) -> ModelRequest:
        value = getattr(request, field)
        is_there = value is not None if only is None else value == only
        return replace(request, **{field: instead}) if is_there else request

    return made


def _with_messages(change: Callable[[list[Message]], list[Message]]) -> Callable[[ModelRequest], ModelRequest]:
    def made(request: ModelRequest) -> ModelRequest:
        messages = request.messages.objects()
        changed = change(messages)
        return request if changed == messages else replace(request, messages=Messages.of(changed))

    return made


def _with_each(change: Callable[[Message], Message]) -> Callable[[ModelRequest], ModelRequest]:
    return _with_messages(lambda messages: [*map(change, messages)])


def _in_order(messages: list[Message]) -> list[Message]:
    """Let roles alternate: a user speaks first, and after results of tools only once the model has."""
    ordered: list[Message] = []
    for message in messages:
        last = ordered[-1]["role"] if ordered else ""
        if message["role"] == "user" and last == "tool":
            ordered.append(_HAS_READ)
        elif message["role"] == "assistant" and last in {"", "system"}:
            ordered.append(_BEGINS)
        ordered.append(message)
    return ordered


def _tools_as_text(request: ModelRequest) -> ModelRequest:
    """Describe the functions in the system message, and write calls and results as texts."""
    if not request.tools:
        return request
    functions = [tool["function"] for tool in request.tools]
    if len(functions) == 1:
        form = texts.ONE_FUNCTION.format(schema=compact(functions[0]["parameters"]))
    else:
        form = texts.FUNCTIONS.format(functions="\n".join(map(compact, functions)))
    messages: list[Message] = []
    for message in request.messages.objects():
        if "tool_calls" in message:
            messages.append(says("assistant", native.action_of(message["tool_calls"])[0]))
        else:
            messages.append({"role": "user", "content": message["content"]} if message["role"] == "tool" else message)
    messages.insert(1 if messages[0]["role"] == "system" else 0, says("system", form))
    return replace(request, tools=None, tool_choice=None, messages=Messages.of(messages))


def _with_opaque(message: dict[str, Any], call: dict[str, Any]) -> Callable[[ModelRequest], ModelRequest]:
    """Return what gives these opaque fields to calls that have none of their own, as those of another model."""

    def made(request: ModelRequest) -> ModelRequest:
        def completed(each: Message) -> Message:
            if "tool_calls" not in each:
                return each
            own = each.get(OPAQUE) or {}
            own = own if own.get("model") == request.model else {}
            kept = [*own.get("calls", ()), *[{}] * len(each["tool_calls"])][: len(each["tool_calls"])]
            calls = [fields or call for fields in kept]
            return {
                **each,
                OPAQUE: {"model": request.model, "message": {**message, **own.get("message", {})}, "calls": calls},
            }

        return _with_each(completed)(request)

    return made


ORDER = Change(
    "a message of a user right after one of a tool",
    r"after (?:a )?(?:role )?['\"`]?tool|roles? .{0,40}alternat|alternat.{0,40}role|consecutive .{0,20}user",
    _with_messages(_in_order),
)  # Mistral, vLLM's templates
CHANGES: tuple[Change, ...] = (
    ORDER,
    Change(  # Gemma's template, Gemini
        "a system message",
        r"(?:system|developer) (?:role|message|prompt|instruction)s?.{0,40}(?:not|un)|role.{0,20}system.{0,40}not",
        _with_each(lambda message: {**message, "role": "user"} if message["role"] == "system" else message),
    ),
    # DeepSeek in thinking mode, Qwen, Kimi
    Change("tool_choice: required", _OF_CHOICE, _without("tool_choice", "required", "auto"), is_guessed=True),
    # DeepSeek's reasoner
    Change("tool_choice", _OF_CHOICE, _without("tool_choice")),
    Change(  # Databricks, Cohere, Azure's older versions
        "stream_options", r"stream_options|include_usage", _without("asks_usage", only=True, instead=False)
    ),
    Change(  # LM Studio, models without JSON mode
        "response_format",
        r"response[_ ]?format|json[_ ](?:object|schema|mode)|structured output",
        _without("response_format"),
        is_guessed=True,
        code="response_format_refused",
    ),
    Change(  # Gemini, of calls that another model has made; its documentation names this value
        "calls without a thought_signature",
        r"missing.{0,20}thought_?signature",
        _with_opaque({}, {"extra_content": {"google": {"thought_signature": "skip_thought_signature_validator"}}}),
    ),
    Change(  # DeepSeek, Kimi, of calls that another model has made
        "calls without reasoning_content",
        r"(?:missing|must|require).{0,60}reasoning_content|reasoning_content.{0,60}(?:missing|must|require)",
        _with_opaque({"reasoning_content": "(not kept)"}, {}),
    ),
    Change(  # servers that send such fields and do not take them
        "fields that came with its calls",
        r"reasoning_content|reasoning_details|thinking_blocks|extra_content|provider_specific",
        _with_each(lambda message: {key: value for key, value in message.items() if key != OPAQUE}),
    ),
    # models without reasoning behind a name that the table knows as reasoning
    Change("reasoning_effort", r"reasoning|thinking", _without("reasoning_effort")),
    Change(  # Ollama, vLLM without a parser of calls
        "native calls of tools",
        r"(?:not|n't|un)[ -]?support\w*.{0,30}\b(?:tools?|functions?)\b|tool[ _]choice requires"
        r"|\b(?:tools?|functions?)(?:[ _-]?(?:use|calls?|calling))? (?:is|are) (?:not|un)",
        _tools_as_text,
    ),
    Change(  # vLLM, Cerebras: a message with calls needs a content
        "a message without content",
        r"content",
        _with_each(lambda message: message if "content" in message else {**message, "content": ""}),
    ),
)
"""The rows, those that a text names most exactly first. Who refuses what stands beside each."""


class WithoutRefusedFields:
    """A model that sends requests to another one, without what this one has refused."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._learnt: dict[str, dict[str, Change]] = {}
        """Model -> what is changed for it, by name, in the order in which it is made."""
        self._proven: set[tuple[str, str]] = set()
        """Models that have answered a request with this change."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        """Yield the reply's deltas and, last, the Reply (see Model). Raises ModelFailed."""
        asked, made = self._changed(request)
        refusal: ModelFailed | None = None
        model = metrics.named("model", request.model)
        began, has_begun, code = time.monotonic(), False, "abandoned"
        try:
            async with aclosing(self._model.stream(asked)) as pieces:
                async for piece in pieces:
                    if not has_begun:
                        has_begun = True
                        metrics.labelled(metrics.FIRST_TOKEN_SECONDS, model).observe(time.monotonic() - began)
                    if isinstance(piece, Reply):
                        code = "ok"
                        metrics.count_tokens(model, piece.usage)
                        self._proven |= {(request.model, change.name) for change in made}
                        warnings = tuple(change.warning for change in made if change.warning)
                        yield replace(piece, warnings=warnings) if warnings else piece
                    else:
                        yield piece
        except ModelFailed as error:
            code = error.fault.code
            said, error.said = error.said, ""
            is_refusal = error.fault.code == "model_refused" and error.status in _UNSURE
            if error.after_output or not (is_refusal or error.status == _TEMPLATE_FAILED):
                raise
            change = self._learn(asked, made, said, is_refusal=is_refusal)
            if change is None:
                raise
            reason = f"the provider of {request.model} refused a request with {change.name}"
            refusal = ModelFailed(change.code, reason, retryable=True)
        finally:
            metrics.labelled(metrics.MODEL_REQUESTS, model, code).inc()
            metrics.labelled(metrics.MODEL_SECONDS, model).observe(time.monotonic() - began)
        if refusal is not None:
            raise refusal

    def _changed(self, request: ModelRequest) -> tuple[ModelRequest, list[Change]]:
        made: list[Change] = []
        if request.model not in self._learnt:
            self._learnt[request.model] = {ORDER.name: ORDER} if provider_of(request.model) == "mistral" else {}
        for change in self._learnt[request.model].values():
            changed = change.made(request)
            if changed is not request:
                request = changed
                made.append(change)
        return request, made

    def _learn(self, asked: ModelRequest, made: list[Change], said: str, *, is_refusal: bool) -> Change | None:
        """Return what is changed in the next request; None: the request is refused for another reason."""
        known = self._learnt[asked.model]
        # Another run may have learnt meanwhile.
        candidates = [change for change in known.values() if change not in made]
        candidates += [change for change in CHANGES if re.search(change.blamed, said)]
        if is_refusal:
            candidates += tool_changes(asked, said)
            if not _NO_FIELD.search(said):
                candidates += [change for change in CHANGES if change.is_guessed]
        for change in candidates:
            if change.made(asked) is not asked:
                known[change.name] = change
                return change
        for change in made:
            if change.is_guessed and (asked.model, change.name) not in self._proven:
                del known[change.name]
        return None


def tool_changes(request: ModelRequest, said: str) -> Iterator[Change]:
    """Yield what may be changed in the tool that a refusal blames, or in all where it blames none.

    First only the names and simple types of its arguments are sent. If that is refused too, the tool is left out.
    """
    tools = request.tools or []
    if not tools or not re.search(_OF_TOOLS, said):
        return
    blamed = _blamed(tools, said)
    if blamed is None and re.search(_OF_SCHEMAS, said):
        yield Change("the schemas of its tools", _OF_TOOLS, _with_flat_tools)
    elif blamed is not None and not _is_own(blamed):
        name = blamed["function"]["name"]
        warning = f"the tool {name} was left out: the provider of {request.model} refuses its schema"
        yield Change(f"the schema of the tool {name}", _OF_TOOLS, partial(_with_tool, blamed, _flat(blamed)))
        yield Change(f"the tool {name}", _OF_TOOLS, partial(_with_tool, blamed, None), warning=warning)


def _blamed(tools: list[dict[str, Any]], said: str) -> dict[str, Any] | None:
    names = {tool["function"]["name"].lower(): tool for tool in tools}
    found = [
        (match.start(), tool)
        for name, tool in names.items()
        if (match := re.search(rf"(?:['\"`]|(?:function|tool)s?:? ){re.escape(name)}(?![\w-])", said))
    ]
    if found:
        return min(found, key=lambda each: each[0])[1]
    number = _NUMBER.search(said)
    return tools[int(number[1])] if number and int(number[1]) < len(tools) else None


def _is_own(tool: dict[str, Any]) -> bool:
    """Whether it is no tool but an action of ours, whose schema every server takes."""
    name = tool["function"]["name"]
    return name in RESERVED or name.startswith("__")


def _with_flat_tools(request: ModelRequest) -> ModelRequest:
    tools = [tool if _is_own(tool) else _flat(tool) for tool in request.tools or ()]
    return request if tools == (request.tools or []) else replace(request, tools=tools)


def _flat(tool: dict[str, Any]) -> dict[str, Any]:
    return {**tool, "function": {**tool["function"], "parameters": native.flat_schema(tool["function"]["parameters"])}}


def _with_tool(old: dict[str, Any], new: dict[str, Any] | None, request: ModelRequest) -> ModelRequest:
    if old == new or old not in (request.tools or ()):
        return request
    tools = [new if tool == old else tool for tool in request.tools or ()]
    return replace(request, tools=[tool for tool in tools if tool is not None])
