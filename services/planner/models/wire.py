"""Converts between this package's types and chat completions, those of LiteLLM included, without importing it."""

from collections.abc import Iterator
from typing import Any

from contracts.runs.payload import Usage
from services.planner.conversation.encoding import Message, Messages, Piece, merged, text_parts, text_tokens
from services.planner.models.gathered import Gathered
from services.planner.models.types import CallPiece

CACHE_CONTROL_PREFIXES = ("anthropic/", "claude-", "vertex_ai/claude", "openrouter/anthropic/", "azure_ai/claude")


def supports_cache_control(model: str) -> bool:
    """Whether the model's provider accepts `cache_control` on parts of messages. Others may refuse the request."""
    return model.startswith(CACHE_CONTROL_PREFIXES) or (model.startswith("bedrock/") and "anthropic." in model)


def pieces_for(model: str, messages: Messages) -> list[Piece]:
    """Return the conversation in the form that this model's provider expects. Encoded messages stay as they are.

    Consecutive texts of one role are merged. `cache_control` stays where the provider supports it, with one more at the
    end, so that the next turn finds the whole conversation in the cache. Elsewhere it is removed, and a single text
    part becomes plain text.
    """
    pieces = merged(messages.pieces)
    if not supports_cache_control(model):
        return [piece if isinstance(piece, bytes) else _plain(piece) for piece in pieces]
    last = pieces[-1] if pieces else b""
    parts = text_parts(last.get("content")) if isinstance(last, dict) else []
    if isinstance(last, dict) and parts and parts[-1]["type"] == "text":
        pieces[-1] = {**last, "content": [*parts[:-1], {**parts[-1], "cache_control": {"type": "ephemeral"}}]}
    return pieces


def _plain(message: Message) -> Message:
    content = message.get("content")
    if not isinstance(content, list):
        return message
    parts = [{name: value for name, value in part.items() if name != "cache_control"} for part in content]
    is_text = all(part["type"] == "text" for part in parts)
    return {**message, "content": "".join(part["text"] for part in parts) if is_text else parts}


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
    """Return the counts that `contracts.runs.payload.Usage` keeps."""
    written = getattr(usage, "completion_tokens_details", None)
    read = getattr(usage, "prompt_tokens_details", None)
    return {
        "prompt_tokens": usage.prompt_tokens or 0,
        "completion_tokens": usage.completion_tokens or 0,
        "reasoning_tokens": getattr(written, "reasoning_tokens", None) or 0,
        "cached_tokens": getattr(read, "cached_tokens", None) or 0,
    }


def estimate(messages: Messages, text: str, reasoning: str) -> Usage:
    """Estimate the usage of a reply."""
    return Usage(
        model_calls=1,
        prompt_tokens=messages.tokens,
        completion_tokens=text_tokens(text) + text_tokens(reasoning),
        estimated=True,
    )
