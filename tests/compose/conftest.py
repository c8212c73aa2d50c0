"""One deployment with a provider on this machine."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compose.deployment import MODEL, TENANTS, Deployment, needs_compose
from tests.support.model_server import ModelServer
from tests.support.needs import needs_program


@pytest.fixture
def provider() -> Iterator[ModelServer]:
    """A provider on this machine, where containers reach it."""
    with ModelServer(host="0.0.0.0") as server:
        yield server


@pytest.fixture
def deployment(tmp_path: Path, provider: ModelServer) -> Iterator[Deployment]:
    """A copy of the checkout with built images, two further tenants and the provider; removed afterwards."""
    needs_compose()
    for program in ("go", "npm", "nats"):
        needs_program(program)
    made = Deployment(tmp_path / "clone", "runwire-compose-test")
    made.copy_checkout()
    keys = ",".join(f"{tenant} {hashlib.sha256(tenant.encode()).hexdigest()}" for tenant in TENANTS)
    (made.folder / "config/gateway.env").write_text(f"RUNWIRE_API_KEYS={keys}\n", encoding="utf-8")
    base = provider.url.replace("127.0.0.1", "host.docker.internal")
    settings = f"RUNWIRE_MODELS={MODEL}\nRUNWIRE_MODEL_API_BASE={base}\nRUNWIRE_MODEL_API_KEY=none\n"
    (made.folder / "config/providers.env").write_text(settings, encoding="utf-8")
    made.build()
    yield made
    made.down()
