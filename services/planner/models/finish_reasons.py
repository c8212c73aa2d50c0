"""What the end of a reply means: one table of the finish reasons that servers send.

Rule 1: a reason that is in no row means what a word in it says (`WORDS`), and without such a word that the reply is
whole: servers invent names for ordinary ends. Case and punctuation do not matter.
Rule 2: without a reason, the end of the protocol counts: `[DONE]`, or a completion that was sent whole.
"""

import re
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
"""Finish reason, in lower case, with `_` between words -> meaning. The source stands beside each."""
WORDS: tuple[tuple[re.Pattern[str], Ending], ...] = (
    (re.compile(r"max_.*(?:tokens|length)|length|(?<!rate_)limit|truncat|exceed|out_of_tokens|incomplete"), "limit"),
    (re.compile(r"filter|safety|sensitive|moderat|block|policy|guardrail|refus"), "filtered"),
    (re.compile(r"error|fail|rate_limit|abort|cancel|timeout|time_out|interrupt|overload|preempt|terminat"), "broken"),
)
"""Words in reasons of no row, such as `max_new_tokens`, `imageSafety` and `server_error`."""
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_PUNCTUATION = re.compile(r"[\W_]+")


def ending_of(finish_reason: str | None, *, is_ended: bool) -> Ending:
    """Return what a reply's end means. `is_ended`: the protocol's own end has come."""
    if finish_reason is None:
        return "whole" if is_ended else "broken"
    reason = _PUNCTUATION.sub("_", _CAMEL.sub("_", finish_reason)).strip("_").lower()
    by_word: Ending = next((ending for word, ending in WORDS if word.search(reason)), "whole")
    return ENDINGS.get(reason, by_word)
