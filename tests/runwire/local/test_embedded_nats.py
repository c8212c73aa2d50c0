"""The nats-server of a data folder."""

import subprocess
from pathlib import Path

import pytest

from runwire.local import embedded_nats
from runwire.local.supervisor import CannotLaunch


def test_a_damaged_file_of_users_stops_the_start(tmp_path: Path) -> None:
    """With its name and what to do."""
    (tmp_path / "identities.json").write_text("{")
    with pytest.raises(CannotLaunch, match=r"identities\.json cannot be read"):
        embedded_nats.passwords_of(tmp_path)


def test_any_name_of_a_folder_will_do(tmp_path: Path) -> None:
    """Quotes and backslashes too."""
    folder = tmp_path / 'a "quoted" \\n folder'
    folder.mkdir()
    embedded_nats.passwords_of(folder)
    command = embedded_nats.configure(folder, 4999, "1s")
    checked = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
