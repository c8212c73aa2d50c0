"""The nats-server that `runwire up` starts: JetStream in the data folder, and the users of that folder.

Rule 1: every connection needs a user of the data folder, so another `runwire up` on this machine, and its tools, stay
apart.
Rule 2: passwords are in files that only their owner can read, never on a command line.
"""

import json
import re
import shutil
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from runwire.credentials.identities import changed
from runwire.errors import IdentitiesUnreadable
from runwire.local.supervisor import CannotLaunch
from runwire.private_files import write_private

_CONFIG = """\
# Written by `runwire up`; changes are overwritten.
listen: "127.0.0.1:{port}"
server_name: "runwire"
max_payload: 8MB
# What waits for one client: several large results at once.
max_pending: 256MB
write_deadline: "10s"
jetstream {{
  store_dir: {store}
  # Every acknowledged write survives a power cut. `1s` is faster and may lose the last second.
  sync_interval: {sync}
  max_memory_store: 256MB
  max_file_store: 20GB
  limits {{ max_ha_assets: 0 }}
}}
include "nats/accounts.conf"
"""
_CONFIG_FILE = "nats.conf"
_DEFAULT_PORT = 4222
_LISTEN_LINE = re.compile(r'^listen: "127\.0\.0\.1:(\d+)"$', re.MULTILINE)


def find_nats_server() -> str:
    """The nats-server of the Python environment, else of the PATH. Raises CannotLaunch."""
    found = shutil.which("nats-server", path=sysconfig.get_path("scripts")) or shutil.which("nats-server")
    if found is None:
        raise CannotLaunch(
            "nats-server was not found: `make run` in a clone of the repository brings it, or install 2.12 or newer"
        )
    return found


def passwords_of(data: Path) -> dict[str, str]:
    """The passwords of the data folder's users, made at the first start. Raises CannotLaunch."""
    try:
        with changed(data, any_tool=True) as known:
            return known.passwords
    except IdentitiesUnreadable as error:
        raise CannotLaunch(str(error)) from error


def last_port(data: Path) -> int:
    """The port of the last start from this folder, where clients expect the server again; else NATS's default port."""
    try:
        found = _LISTEN_LINE.search((data / _CONFIG_FILE).read_text(encoding="utf-8"))
    except OSError:
        return _DEFAULT_PORT
    return int(found[1]) if found else _DEFAULT_PORT


def configure(data: Path, port: int, sync: str) -> list[str]:
    """Write the configuration and return the command that starts the server. Nothing has its files open yet."""
    file = data / _CONFIG_FILE
    write_private(
        file, _CONFIG.format(port=port, store=json.dumps(str(data / "jetstream"), ensure_ascii=False), sync=sync)
    )
    return [find_nats_server(), "-c", str(file)]


def client_environment(port: int, user: str, passwords: Mapping[str, str]) -> dict[str, str]:
    """The settings with which a service or tool connects as a user."""
    return {
        "RUNWIRE_NATS_URL": url_of(port),
        "RUNWIRE_NATS_USER": user,
        "RUNWIRE_NATS_PASSWORD": passwords[user],
    }


def url_of(port: int) -> str:
    """The server's address, without the login."""
    return f"nats://127.0.0.1:{port}"
