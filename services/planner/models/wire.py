"""What both ways to a model share: the messages that are sent, and what a provider wants to see again. No I/O.

Rule 1: opaque fields of a reply are kept as they came, with the calls that they belong to. They are sent back to the
same model only: others refuse them, or would read what is not theirs.
Rule 2: they are never shown. The log has them, so that they survive a crash.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import chain, repeat
from typing import Any

from contracts.runs.decisions import FINAL_RESPONSE
from contracts.runs.payload import Usage
from contracts.runs.step_events import Opaque
from services.planner.conversation.encoding import OPAQUE, Message, Messages, Piece, merged, text_parts, text_tokens
from services.shared.redaction.json_values import plain

_CACHES = re.compile(r"anthropic/|claude-|vertex_ai/claude|openrouter/anthropic/|azure_ai/claude|bedrock/.*anthropic\.")
"""Models whose providers accept `cache_control` on parts of messages. Others may refuse the request."""


def pieces_for(model: str, messages: Messages) -> list[Piece]:
    """Return the conversation in the form that this model's provider expects. Encoded messages stay as they are.

    Consecutive texts of one role are merged. `cache_control` stays where the provider supports it, with one more at the
    end, so that the next turn finds the whole conversation in the cache. Elsewhere it is removed, and a single text
    part becomes plain text.
    """
    pieces = [restored(model, piece) for piece in merged(messages.pieces)]
    if not _CACHES.match(model):
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


def estimate(messages: Messages, text: str, reasoning: str) -> Usage:
    """Estimate the usage of a reply."""
    return Usage(
        model_calls=1,
        prompt_tokens=messages.tokens,
        completion_tokens=text_tokens(text) + text_tokens(reasoning),
        estimated=True,
    )


REASONING = "reasoning_content"
"""A text that comes in pieces: DeepSeek, Kimi, MiniMax."""
DETAILS = "reasoning_details"
"""A list: OpenRouter."""
BLOCKS = "thinking_blocks"
"""Signed thoughts of Anthropic, as LiteLLM and its proxy name them."""
CALL_FIELDS = ("extra_content", "provider_specific_fields")
"""Fields of a call with Gemini's `thought_signature`: in its own OpenAI protocol, and through LiteLLM."""
SIGNATURE_IN_ID = "__thought__"
"""LiteLLM writes the signature behind this mark, too, into the id of a call."""

OPAQUE_FIELDS = frozenset({REASONING, DETAILS, BLOCKS, "tool_calls"})
"""Fields of a delta in which `OpaqueFields` may find something."""


class OpaqueFields:
    """Gathers the fields of one reply."""

    def __init__(self) -> None:
        self._has_reasoning = False
        self._items: dict[str, list[Any]] = {}
        self._calls: list[tuple[str, dict[str, Any]]] = []
        """Id and fields of each call that has any, in order."""

    def take(self, delta: Any) -> None:
        """Read a delta, or a whole message: a mapping, or an object with attributes."""
        if isinstance(text := _get(delta, REASONING), str) and text:
            self._has_reasoning = True
        if isinstance(items := _get(delta, DETAILS), list):
            self._items.setdefault(DETAILS, []).extend(plain(items))
        blocks = _get(delta, BLOCKS)
        for block in blocks if isinstance(blocks, list) else ():
            if isinstance(block, Mapping):
                self._take_block(plain(block))
        calls = _get(delta, "tool_calls")
        for call in calls if isinstance(calls, list) else ():
            call_id = given if isinstance(given := _get(call, "id"), str) else ""
            fields = {
                name: plain(value) for name in CALL_FIELDS if isinstance(value := _get(call, name), Mapping) and value
            }
            if not fields and SIGNATURE_IN_ID in call_id:
                fields = {CALL_FIELDS[1]: {"thought_signature": call_id.partition(SIGNATURE_IN_ID)[2]}}
            if fields:
                self._calls.append((call_id, fields))

    def _take_block(self, block: dict[str, Any]) -> None:
        """A thought comes in pieces. The last one has its signature, and all of its text or none."""
        found = self._items.setdefault(BLOCKS, [])
        last = found[-1] if found else {}
        if block.get("type") != "thinking" or last.get("type") != "thinking" or last.get("signature"):
            found.append(block)
            return
        text = str(block.get("thinking") or "")
        last["thinking"] = text if block.get("signature") and text else str(last.get("thinking") or "") + text
        if block.get("signature"):
            last["signature"] = block["signature"]

    def of(self, model: str, calls: Sequence[Mapping[str, Any]], reasoning: str) -> Opaque | None:
        """Return what belongs to these calls of a reply, with its reasoning; None: nothing."""
        message: dict[str, Any] = {REASONING: reasoning} if self._has_reasoning else {}
        message |= {name: items for name, items in self._items.items() if items}
        by_id = {call_id: fields for call_id, fields in self._calls if call_id}
        in_order = [fields for _, fields in self._calls]
        are_named = len(by_id) == len(in_order) and by_id.keys() <= {call["id"] for call in calls}
        calls = [call for call in calls if call["function"]["name"] != FINAL_RESPONSE]  # Left out among others.
        of_calls = [
            by_id.get(call["id"], {}) if are_named else in_order[number] if number < len(in_order) else {}
            for number, call in enumerate(calls)
        ]
        if not of_calls or not (message or any(of_calls)):
            return None
        return Opaque(model=model, message=message, calls=of_calls if any(of_calls) else [])


def restored(model: str, piece: Piece) -> Piece:
    """Return a message as it is sent to a model: with the opaque fields that are its own, and without all others."""
    if isinstance(piece, bytes) or OPAQUE not in piece:
        return piece
    message = {name: value for name, value in piece.items() if name != OPAQUE}
    opaque = piece[OPAQUE]
    if opaque["model"] != model:
        return message
    fields_of = chain(opaque["calls"], repeat({}))  # The calls of a plan may be more.
    calls = [{**call, **fields} for call, fields in zip(message["tool_calls"], fields_of, strict=False)]
    return {**message, **opaque["message"], "tool_calls": calls}


def _get(source: Any, name: str) -> Any:
    return source.get(name) if isinstance(source, Mapping) else getattr(source, name, None)
