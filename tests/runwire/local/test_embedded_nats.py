"""The nats-server of a data folder."""

from pathlib import Path

import pytest

from runwire.local import embedded_nats
from runwire.local.supervisor import CannotLaunch


def test_a_damaged_file_of_users_stops_the_start(tmp_path: Path) -> None:
    """With its name and what to do."""
    (tmp_path / "identities.json").write_text("{")
    with pytest.raises(CannotLaunch, match=r"identities\.json cannot be read"):
        embedded_nats.passwords_of(tmp_path)
