"""nats-server reads its accounts again, and a server that cannot be trusted gets no password."""

from pathlib import Path

import pytest

from contracts.wire.rights import RELOADER
from runwire.cli.operator import reload_accounts
from runwire.errors import ServerRefused
from tests.support.certificates import make_certificates, tls_of_server
from tests.support.nats_server import NatsServer


async def test_a_certificate_is_checked(tmp_path: Path) -> None:
    """With the authority the server takes the accounts; without it nothing counts as changed."""
    certificates = make_certificates(tmp_path / "certificates")
    with NatsServer(tmp_path / "nats", identities=True, extra=tls_of_server(certificates)) as server:
        password = server.passwords[RELOADER]
        assert await reload_accounts(server.url, password, str(certificates / "ca.pem"))
        with pytest.raises(ServerRefused, match=r"(?i)certificate"):
            await reload_accounts(f"tls://127.0.0.1:{server.port}", password)


async def test_a_server_without_tls_is_refused_where_it_is_demanded(own_nats_server: NatsServer) -> None:
    """It is sent no password."""
    with pytest.raises(ServerRefused, match="offers no TLS"):
        await reload_accounts(f"tls://127.0.0.1:{own_nats_server.port}", "canary")
