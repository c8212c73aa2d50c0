"""What every message has in common, and what services and the command `runwire` agree on beside messages.

Rule 1: messages are frozen; a changed message is a new message.
Rule 2: unknown fields are ignored, since a newer version may send them; a record of an unknown version is refused
(`records.Record`).
Rule 3: this package imports pydantic and nothing else, so that other projects can vendor it.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict


class Message(BaseModel):
    """Base of all messages between services."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        populate_by_name=True,
        ser_json_bytes="base64",
        val_json_bytes="base64",
        defer_build=True,  # No process uses all messages: each is built at its first use.
    )


def is_absent(value: Any) -> bool:
    """Whether a field is left out when its message is written: null, zero or empty. For `exclude_if`."""
    return not value


class HttpInput(BaseModel):
    """Base of the bodies that clients send to the gateway. A misspelt field is an error that names it."""

    model_config = ConfigDict(frozen=True, extra="forbid")


NOT_STORED = "NATS does not store"
"""The beginning of the problem if writes to NATS fail although the service is connected. Restart NATS once its disk has
space."""
EXIT_WRONG_SETTINGS = 78
"""The exit code of a service whose settings, agents file or tools file are wrong: another start would end the same way.
The last line on stderr says what is wrong. (EX_CONFIG of `sysexits.h`.)"""

DEMO_MODEL = "builtin/rehearsal"
"""The model of a planner without a provider's key and without a local Ollama."""
OLLAMA_PORT = 11434
MODEL_BY_KEY = {
    "OPENAI_API_KEY": "openai/gpt-5.4-mini",
    "ANTHROPIC_API_KEY": "anthropic/claude-sonnet-4-6",
    "GEMINI_API_KEY": "gemini/gemini-flash-latest",
    "MISTRAL_API_KEY": "mistral/mistral-medium-latest",
    "GROQ_API_KEY": "groq/llama-3.3-70b-versatile",
    "DEEPSEEK_API_KEY": "deepseek/deepseek-chat",
    "XAI_API_KEY": "xai/grok-4",
    "OPENROUTER_API_KEY": "openrouter/openai/gpt-5.4-mini",
}
"""Variable of a provider's key -> model to use. The first variable that is set decides."""
