"""The gateway of the gateway's own tests, over a server that a test may stop."""

import pytest

from tests.gateway.conftest import bus, served
from tests.support.nats_server import NatsServer

__all__ = ["bus", "served"]


@pytest.fixture
def shared_nats(own_nats_server: NatsServer) -> NatsServer:
    """The server of one test."""
    return own_nats_server
