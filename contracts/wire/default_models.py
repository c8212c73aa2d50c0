"""Which model answers where none is configured: what a planner chooses, and `runwire doctor` says in advance."""

DEMO_MODEL = "builtin/rehearsal"
"""Used without a provider's key and without a local Ollama."""
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
