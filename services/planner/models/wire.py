"""What both ways to a model over HTTP share: the messages that are sent, and the estimate of their usage. No I/O."""

from contracts.runs.payload import Usage
from services.planner.conversation.encoding import Message, Messages, Piece, merged, text_parts, text_tokens

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


def estimate(messages: Messages, text: str, reasoning: str) -> Usage:
    """Estimate the usage of a reply."""
    return Usage(
        model_calls=1,
        prompt_tokens=messages.tokens,
        completion_tokens=text_tokens(text) + text_tokens(reasoning),
        estimated=True,
    )
