"""What the tests of the models share."""

from collections.abc import Iterator

import pytest

from tests.support.model_server import ModelServer


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    """A provider with scripted replies."""
    with ModelServer() as running:
        yield running
