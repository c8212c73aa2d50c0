"""How a model is asked: the demo model, directly, or through LiteLLM."""

import subprocess
import sys

import pytest

from services.planner.conversation.encoding import Messages
from services.planner.models import by_provider
from services.planner.models.by_provider import ByProvider
from services.planner.models.errors import ModelFailed
from services.planner.models.limits import Limits
from services.planner.models.providers import Endpoints
from services.planner.models.providers import ModelServer as Address
from services.planner.models.types import ModelRequest, Reply
from tests.support.model_server import ModelServer, Say

WITHOUT_LITELLM = """
import asyncio, sys
import services.planner.__main__
from services.planner.models.by_provider import ByProvider
from services.planner.models.limits import Limits
from services.planner.models.providers import Endpoints
from services.planner.models.providers import ModelServer as Address
models = ByProvider(Endpoints(environment={}), Limits())
asyncio.run(models.warm(["openai/gpt-5.4-mini", "builtin/rehearsal", "ollama/llama3"]))
assert "litellm" not in sys.modules
"""


async def said(models: ByProvider, model: str) -> str:
    """What comes back for a request to this model."""
    request = ModelRequest(model=model, messages=Messages.of([{"role": "user", "content": "?"}]))
    pieces = [piece async for piece in models.stream(request)]
    assert isinstance(pieces[-1], Reply)
    return pieces[-1].text


async def test_the_name_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo model answers under its own name alone; Claude has a protocol of its own."""
    with ModelServer() as server:
        server.say(Say(text="directly"))
        monkeypatch.setenv("ANTHROPIC_API_BASE", server.root)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "made-up")
        models = ByProvider(Endpoints(environment={}, api_base=server.url), Limits())
        assert await said(models, "openai/builtin/rehearsal") == "directly"
        assert server.ledger[-1].path == "/v1/chat/completions"
        await said(models, "anthropic/claude-sonnet-4-5")
        assert server.ledger[-1].path == "/v1/messages"
        with pytest.raises(ModelFailed, match="there is no model builtin/other"):
            await said(models, "builtin/other")
        await models.aclose()


async def test_each_of_two_local_servers_gets_its_own_key() -> None:
    """So that one can be the fallback of the other."""
    with ModelServer() as first, ModelServer() as second:
        first.say(Say(text="first"))
        second.say(Say(text="second"))
        large, small = Address(api_base=first.url, api_key_env="LARGE_KEY"), Address(api_base=second.url)
        addresses = {"openai/large": large, "small": small}
        models = ByProvider(Endpoints(environment={"LARGE_KEY": "l"}, servers=addresses), Limits())
        assert [await said(models, name) for name in addresses] == ["first", "second"]
        assert first.ledger[0].headers["authorization"] == "Bearer l"
        assert "authorization" not in second.ledger[0].headers
        await models.aclose()


def test_litellm_is_imported_only_for_a_model_that_needs_it() -> None:
    """It takes seconds and 150 MB. In a process of its own, since other tests import it."""
    subprocess.run([sys.executable, "-c", WITHOUT_LITELLM], check=True, timeout=60)


def test_where_litellm_is_not_installed_the_first_model_that_needs_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the command that mends it. `*` and the demo model need nothing."""
    endpoints = Endpoints(environment={}, servers={"own/large": Address(api_base="http://gpu1:8000/v1")})
    monkeypatch.setattr(by_provider, "find_spec", lambda _name: None)
    assert by_provider.missing_library(["*", "builtin/rehearsal", "openai/x", "own/large"], endpoints) is None
    said = by_provider.missing_library(["groq/x", "anthropic/y", "cohere/z"], endpoints) or ""
    assert said.startswith("anthropic/y is asked through LiteLLM")
    assert "pip install '/path/to/clone[litellm]'" in said
    monkeypatch.setattr(by_provider, "find_spec", lambda _name: True)
    assert by_provider.missing_library(["anthropic/y"], endpoints) is None
