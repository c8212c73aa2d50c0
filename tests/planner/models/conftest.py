"""What the tests of the models share."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.model_paths import PATHS, Models, models_on
from tests.support.model_server import ModelServer


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


@pytest.fixture(params=PATHS)
async def model(
    request: pytest.FixtureRequest, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Models]:
    """Models on each path whose providers are all the scripted one."""
    server.reset()
    for name in ("ANTHROPIC", "GEMINI", "OLLAMA"):
        monkeypatch.setenv(f"{name}_API_BASE", server.root)
        monkeypatch.setenv(f"{name}_API_KEY", "made-up")
    models = models_on(request.param, server.url)
    yield models
    await models.aclose()
