"""The nats-server that `runwire up` starts: JetStream in the data folder.

Rule 1: every connection needs the login of the data folder, so another `runwire up` on this machine, and its tools,
stay apart.
Rule 2: the login is in two files that only their owner can read, never on a command line.
"""

import os
import re
import shutil
import sysconfig
from pathlib import Path

from runwire.local.data_folder import nats_login_file, secret
from runwire.local.supervisor import CannotLaunch
from runwire.private_files import write_private

_CONFIG = """\
# Written by `runwire up`; changes are overwritten.
listen: "127.0.0.1:{port}"
server_name: "runwire"
authorization {{ user: "{user}", password: "{password}" }}
max_payload: 8MB
write_deadline: "10s"
# Tool runners look for tools on discover.>, and tools are NATS micro services, which are asked on $SRV.>.
mappings {{ "discover.>": "$SRV.>" }}
jetstream {{
  store_dir: "{store}"
  # Every acknowledged write survives a power cut. `1s` is faster and may lose the last second.
  sync_interval: {sync}
  max_memory_store: 256MB
  max_file_store: 20GB
  limits {{ max_ha_assets: 0 }}
}}
"""
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


def login_of(data: Path) -> dict[str, str]:
    """The login of this data folder, created at the first start: `user` and `password`."""
    return secret(nats_login_file(data), lambda: {"user": "runwire", "password": os.urandom(24).hex()})


def last_port(data: Path) -> int:
    """The port of the last start from this folder, where clients expect the server again; else NATS's default port."""
    try:
        found = _LISTEN_LINE.search(_config_file(data).read_text(encoding="utf-8"))
    except OSError:
        return _DEFAULT_PORT
    return int(found[1]) if found else _DEFAULT_PORT


def configure(data: Path, port: int, sync: str, login: dict[str, str]) -> list[str]:
    """Write the configuration and return the command that starts the server."""
    command = [find_nats_server(), "-c", str(_config_file(data))]
    write_private(_config_file(data), _CONFIG.format(port=port, store=data / "jetstream", sync=sync, **login))
    return command


def client_environment(port: int, login: dict[str, str]) -> dict[str, str]:
    """The settings with which a service or tool connects."""
    return {
        "RUNWIRE_NATS_URL": url_of(port),
        "RUNWIRE_NATS_USER": login["user"],
        "RUNWIRE_NATS_PASSWORD": login["password"],
    }


def url_of(port: int) -> str:
    """The server's address, without the login."""
    return f"nats://127.0.0.1:{port}"


def _config_file(data: Path) -> Path:
    return data / "nats.conf"
