"""Which models are asked directly, where, and with whose key."""

import re

import pytest

from services.planner.models.errors import ModelFailed
from services.planner.models.providers import PROVIDERS, Endpoints, ModelServer

FIREWORKS = "https://api.fireworks.ai/inference/v1"
KEYS = {name: f"key-of-{name}" for provider in PROVIDERS.values() for name in provider.keys}


@pytest.mark.parametrize(
    ("model", "url", "name"),
    [
        ("openai/gpt-5.4-mini", "https://api.openai.com/v1/chat/completions", "gpt-5.4-mini"),
        ("gpt-5.4-mini", "https://api.openai.com/v1/chat/completions", "gpt-5.4-mini"),
        ("openrouter/openai/gpt-5", "https://openrouter.ai/api/v1/chat/completions", "openai/gpt-5"),
        ("groq/llama-3.3-70b", "https://api.groq.com/openai/v1/chat/completions", "llama-3.3-70b"),
        ("ollama_chat/llama3:8b", "http://localhost:11434/v1/chat/completions", "llama3:8b"),
        ("fireworks_ai/qwen3", f"{FIREWORKS}/chat/completions", "accounts/fireworks/models/qwen3"),
    ],
)
def test_a_known_provider_has_an_address(model: str, url: str, name: str) -> None:
    """The rest of the model's name is its name there."""
    endpoint = Endpoints(environment=KEYS).of(model)
    assert (endpoint.url, endpoint.model) == (url, name)


@pytest.mark.parametrize("model", ["anthropic/claude-sonnet-4-6", "gemini/gemini-flash-latest", "azure/x", "claude-x"])
def test_other_protocols_are_not_served(model: str) -> None:
    """They go through LiteLLM."""
    assert not Endpoints(environment=KEYS).serves(model)


def test_a_providers_variables_apply() -> None:
    """Its base, its key; an Ollama's base is given without the path of the protocol."""
    environment = {"GROQ_API_BASE": "http://proxy/groq/", "GROQ_API_KEY": "g", "OLLAMA_API_BASE": "http://host:11434"}
    endpoints = Endpoints(environment=environment)
    assert endpoints.of("groq/x").url == "http://proxy/groq/chat/completions"
    assert endpoints.of("groq/x").key == "g"
    assert endpoints.of("ollama/x").url == "http://host:11434/v1/chat/completions"
    assert endpoints.of("ollama/x").key is None


def test_the_deployments_base_is_for_openai_and_vllm_alone() -> None:
    """A key of OpenAI's is not sent to it, nor its key to anybody else."""
    endpoints = Endpoints(environment=KEYS, api_base="http://gpu:8000/v1", api_key=None)
    assert endpoints.of("openai/x").url == "http://gpu:8000/v1/chat/completions"
    assert endpoints.of("openai/x").key is None
    assert endpoints.of("groq/x").url == "https://api.groq.com/openai/v1/chat/completions"


SERVER = ModelServer(api_base="http://a", api_key_env="M")


@pytest.mark.parametrize(
    ("model", "endpoints", "reason"),
    [
        ("groq/x", Endpoints(environment={}), "there is no API key for groq/x: set GROQ_API_KEY"),
        ("m", Endpoints(environment={}, servers={"m": SERVER}), "no API key for m: set M"),
        ("hosted_vllm/x", Endpoints(environment={}), "set RUNWIRE_MODEL_API_BASE or HOSTED_VLLM_API_BASE"),
        ("groq/x", Endpoints(environment={"GROQ_API_KEY": "'k'"}), "GROQ_API_KEY holds no API key for groq/x"),
        (
            "openai/x",
            Endpoints(environment={}, api_base="http://a", api_key="Bearer k"),
            "RUNWIRE_MODEL_API_KEY holds no",
        ),
        ("openai/x", Endpoints(environment={}, api_base="http://[gpu/v1"), "is no http URL"),
        ("openai/x", Endpoints(environment={}, api_base="http://gpu/v1?key=a"), "is no http URL"),
        ("openai/x", Endpoints(environment={}, api_base="http://me:word@gpu/v1", api_key="k"), "openai/x names a user"),
    ],
)
def test_what_is_missing_is_named(model: str, endpoints: Endpoints, reason: str) -> None:
    """And nothing is asked."""
    with pytest.raises(ModelFailed, match=re.escape(reason)) as caught:
        endpoints.of(model)
    assert not caught.value.fault.retryable


def test_a_key_is_in_no_text() -> None:
    """Of an object that a log might show."""
    endpoints = Endpoints(environment={}, api_base="http://gpu/v1", api_key="sk-secret")
    assert "sk-secret" not in repr(endpoints) + repr(endpoints.of("openai/x"))
