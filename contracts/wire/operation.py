"""What the services and the command `runwire` agree on beside messages: problems, exit codes and default models."""

NOT_STORED = "NATS does not store"
"""The beginning of the problem if writes to NATS fail although the service is connected. Restart NATS once its disk has
space."""
NOT_CONNECTED = "NATS is not connected"
"""The beginning of the problem if a service has no connection."""
CLOCK_METADATA = "clock"
"""In the announcement of a service: how far its machine's clock is off, as a sentence; empty: it is right."""
S3_METADATA = "s3"
"""In the announcement of the artifact store: why its S3 server cannot be used, as a sentence; empty: it can."""
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
