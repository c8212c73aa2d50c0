"""A server with the accounts of a deployment: its services, three credentials of tools, two of listeners."""

from collections.abc import Iterator

import pytest

from tests.identities.users import add_strangers
from tests.support.nats_server import NatsServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """It has no streams: what the server allows is all that counts."""
    found = NatsServer(tmp_path_factory.mktemp("identities"), identities=True, sync="1s")
    found.add_users(add_strangers)
    found.start()
    yield found
    found.kill()
