"""What the end of a reply means: one table of the finish reasons that servers send.

Rule 1: a reason that is in no row means that the reply is whole: servers invent names for ordinary ends.
Rule 2: without a reason, the end of the protocol counts: `[DONE]`, or a completion that was sent whole.
"""

from typing import Literal

Ending = Literal["whole", "limit", "filtered", "broken"]
"""`limit`: cut at the output limit, so the same request may be cut again. `filtered`: cut by the provider's filter.
`broken`: cut by a fault, so the same request may be answered whole."""

ENDINGS: dict[str, Ending] = {
    "length": "limit",  # OpenAI, vLLM, SGLang, llama.cpp, Ollama
    "max_tokens": "limit",  # Anthropic, Bedrock, Gemini
    "max_output_tokens": "limit",  # OpenAI's Responses behind a bridge
    "model_length": "limit",  # Mistral
    "model_context_window_exceeded": "limit",  # Anthropic
    "content_filter": "filtered",  # OpenAI, Azure, DeepSeek
    "content_filtered": "filtered",  # Bedrock
    "guardrail_intervened": "filtered",  # Bedrock
    "sensitive": "filtered",  # Zhipu
    "refusal": "filtered",  # Anthropic
    "error_toxic": "filtered",  # Cohere
    # Gemini
    **dict.fromkeys(("safety", "recitation", "blocklist", "prohibited_content", "spii", "language"), "filtered"),
    "network_error": "broken",  # Zhipu
    "insufficient_system_resource": "broken",  # DeepSeek
    "repetition_truncation": "broken",  # DeepSeek
    "abort": "broken",  # vLLM, SGLang
    "aborted": "broken",  # TGI and gateways
    "error": "broken",  # OpenRouter, vLLM, Cohere
    "error_limit": "limit",  # Cohere
    "cancelled": "broken",  # gateways
    "timeout": "broken",  # gateways
    "malformed_function_call": "broken",  # Gemini
    "malformed_response": "broken",  # Gemini
    "other": "broken",  # Gemini
}
"""Finish reason in lower case -> meaning. The source stands beside each."""


def ending_of(finish_reason: str | None, *, is_ended: bool) -> Ending:
    """Return what a reply's end means. `is_ended`: the protocol's own end has come."""
    if finish_reason is None:
        return "whole" if is_ended else "broken"
    return ENDINGS.get(finish_reason.strip().lower(), "whole")
