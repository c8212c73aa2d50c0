"""Converts between this package's types and LiteLLM's chat completions, without importing it."""

from collections.abc import Iterator, Sequence
from typing import Any

from services.planner.models.gathered import Gathered
from services.planner.models.types import CallPiece

Message = dict[str, Any]

CACHE_CONTROL_PREFIXES = ("anthropic/", "claude-", "vertex_ai/claude", "openrouter/anthropic/", "azure_ai/claude")
BYTES_PER_TOKEN = 4
TOKENS_PER_IMAGE = 1_000


def supports_cache_control(model: str) -> bool:
    """Whether the model's provider accepts `cache_control` on parts of messages. Others may refuse the request."""
    return model.startswith(CACHE_CONTROL_PREFIXES) or (model.startswith("bedrock/") and "anthropic." in model)


def messages_for(model: str, messages: Sequence[Message]) -> list[Message]:
    """Return the conversation in the form that this model's provider expects.

    Consecutive messages of one role are merged, since some chat templates require alternating turns; calls and their
    results stay separate. `cache_control` stays where the provider supports it, with one more at the end, so that the
    next turn finds the whole conversation in the cache. Elsewhere it is removed, and a single text part becomes plain
    text.
    """
    turns: list[Message] = []
    for message in messages:
        if turns and turns[-1]["role"] == message["role"] and _is_text(turns[-1]) and _is_text(message):
            turns[-1] = {**turns[-1], "content": _parts(turns[-1]["content"], gap=True) + _parts(message["content"])}
        else:
            turns.append(message)
    if not supports_cache_control(model):
        return [{**turn, "content": _plain(turn["content"])} for turn in turns]
    last = _parts(turns[-1]["content"]) if turns else []
    if last and last[-1].get("type") == "text":
        marked = [*last[:-1], {**last[-1], "cache_control": {"type": "ephemeral"}}]
        turns[-1] = {**turns[-1], "content": marked}
    return turns


def _is_text(message: Message) -> bool:
    return "tool_calls" not in message and message["role"] != "tool"


def _parts(content: Any, *, gap: bool = False) -> list[Message]:
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())
    if gap and parts and parts[-1].get("type") == "text":
        parts[-1] = {**parts[-1], "text": parts[-1]["text"] + "\n\n"}
    return parts


def _plain(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    parts = [{name: value for name, value in part.items() if name != "cache_control"} for part in content]
    return "".join(part["text"] for part in parts) if all(part.get("type") == "text" for part in parts) else parts


class GatheredChunks(Gathered):
    """The received chunks of a reply of LiteLLM."""

    def __init__(self) -> None:
        super().__init__()
        self.usage: Any = None
        self.ended = False
        """Whether the provider sent a finish reason. Its usage has arrived by then, or comes with the stream's end."""

    def take(self, chunk: Any) -> Iterator[tuple[str, str, CallPiece | None]]:
        """Add a chunk, and yield its content as (text, reasoning, part of a call)."""
        self.usage = getattr(chunk, "usage", None) or self.usage
        for choice in chunk.choices[:1]:
            self.ended = self.ended or choice.finish_reason is not None
            delta = choice.delta
            text, reasoning = delta.content or "", getattr(delta, "reasoning_content", None) or ""
            if reasoning:
                self._reasoning.append(reasoning)
            if text:
                self._text.append(text)
            if text or reasoning:
                yield text, reasoning, None
            for call in getattr(delta, "tool_calls", None) or ():
                function = call.function
                name, arguments = function.name or "", function.arguments or ""
                yield "", "", self._add_call_piece(call.index or 0, call.id or "", name, arguments)


class FewChunks(list[Any]):
    """Replaces the list in which LiteLLM keeps all chunks. It assembles the reply from them again, which takes seconds.

    This list keeps the last chunks, which LiteLLM compares, and a few of the first with a usage.
    """

    _FIRST, _LAST = 4, 8

    def append(self, chunk: Any) -> None:
        """Add a chunk; drop one above the limit."""
        super().append(chunk)
        if len(self) > self._FIRST + self._LAST:
            go = next(
                (place for place in range(self._FIRST) if getattr(self[place], "usage", None) is None), self._FIRST
            )
            del self[go]


def usage_of(upstream: Any, gathered: GatheredChunks) -> Any:
    """Return the usage that the provider reported, or None.

    LiteLLM's final usage may be an estimate in the same form. Only the provider's own is in the chunks, complete, or in
    parts that LiteLLM adds up at the end.
    """
    found = [usage for chunk in getattr(upstream, "chunks", ()) if (usage := getattr(chunk, "usage", None)) is not None]
    whole = next((usage for usage in reversed(found) if usage.prompt_tokens and usage.completion_tokens), None)
    return whole or (gathered.usage if any(usage.completion_tokens for usage in found) else None)


def counts(usage: Any) -> dict[str, int]:
    """Return the counts that `contracts.payload.Usage` keeps."""
    written = getattr(usage, "completion_tokens_details", None)
    read = getattr(usage, "prompt_tokens_details", None)
    return {
        "prompt_tokens": usage.prompt_tokens or 0,
        "completion_tokens": usage.completion_tokens or 0,
        "reasoning_tokens": getattr(written, "reasoning_tokens", None) or 0,
        "cached_tokens": getattr(read, "cached_tokens", None) or 0,
    }


def estimate(messages: Sequence[Message], text: str, reasoning: str) -> dict[str, int]:
    """Estimate a usage, at four bytes per token."""
    prompt, completion = _tokens_of(messages), _tokens(text) + _tokens(reasoning)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _tokens_of(messages: Sequence[Message]) -> int:
    total = 0
    for message in messages:
        for part in _parts(message["content"] or ""):
            total += _tokens(part["text"]) if part.get("type") == "text" else TOKENS_PER_IMAGE
    return total


def _tokens(text: str) -> int:
    return -(-len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN)
