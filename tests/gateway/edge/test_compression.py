"""What `Accept-Encoding` allows."""

import pytest

from services.gateway.edge.routing import accepts_gzip

PDF = b"%PDF-1.7\n" + bytes(range(256)) * 100


@pytest.mark.parametrize(
    ("accepted", "taken"),
    [
        ("gzip", True),
        ("GZIP", True),
        ("br, gzip;q=0.5", True),
        ("*", True),
        ("*;q=0, gzip", True),
        ("gzip;q=0", False),
        ("gzip; q=0.0", False),
        ("gzip;q=0, *", False),
        ("identity", False),
        ("", False),
    ],
)
def test_which_headers_accept_gzip(accepted: str, *, taken: bool) -> None:
    """As the header says."""
    assert accepts_gzip({"accept-encoding": accepted}) is taken
