"""The servers that `runwire up` runs in its data folder: nats-server with JetStream, and `rclone serve s3`.

Rule 1: every connection to NATS needs a user of the data folder, so another `runwire up`, and its tools, stay apart.
Rule 2: passwords and keys are in files that only their owner can read, never on a command line.
Rule 3: the S3 server never runs without keys, since it would then be open to every program on the machine. It does not
read the user's rclone configuration.
Rule 4: files that a killed S3 server left half written (`.rclone_temp_*`, never listed, never acknowledged) are removed
before the next start.
Rule 5: the S3 server starts when the artifact store first connects: it takes 65 MB, and many runs make no artifact.
"""

import json
import os
import re
import shutil
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from runwire.errors import IdentitiesUnreadable
from runwire.identities import changed, write_private
from runwire.local.data_folder import secret
from runwire.local.supervisor import CannotLaunch

_BUCKET = "runwire"
_HALF_WRITTEN = ".rclone_temp_*"


def keys_of(file: Path) -> dict[str, str]:
    """The `access` and `secret` key that the server and its only client share, made at the first start."""
    return secret(file, lambda: {"access": os.urandom(10).hex(), "secret": os.urandom(20).hex()})


def rclone_command(folder: Path, port: int) -> list[str]:
    """The command that serves `folder` on a loopback port. Raises CannotLaunch where there is no rclone.

    Writes are not cached, since the cache acknowledges what is not stored yet. ETags are not MD5 sums, since nothing
    reads them and the server would read a whole object for its first one, 80 ms for 50 MB.
    """
    options = {"--addr": f"127.0.0.1:{port}", "--vfs-cache-mode": "off", "--etag-hash": ""}
    rclone = _program("rclone", "rclone 1.70 or newer")
    return [rclone, "serve", "s3", str(folder), *(part for option in options.items() for part in option)]


def rclone_environment(keys: Mapping[str, str]) -> Mapping[str, str]:
    """The environment of the command. The value is a line of CSV, hence the quotes."""
    return {"RCLONE_CONFIG": os.devnull, "RCLONE_AUTH_KEY": f'"{keys["access"]},{keys["secret"]}"'}


def store_environment(keys: Mapping[str, str], port: int) -> Mapping[str, str]:
    """The settings with which the artifact store finds this server."""
    return {
        "RUNWIRE_S3_ENDPOINT": f"http://127.0.0.1:{port}",
        "RUNWIRE_S3_BUCKET": _BUCKET,
        "RUNWIRE_S3_ON_DEMAND": "true",
        "RUNWIRE_S3_ACCESS_KEY": keys["access"],
        "RUNWIRE_S3_SECRET_KEY": keys["secret"],
    }


def prepare(folder: Path) -> None:
    """Create the bucket, a folder, and remove what a killed server left half written. The server must not run."""
    (folder / _BUCKET).mkdir(parents=True, exist_ok=True)
    for leftover in folder.rglob(_HALF_WRITTEN):
        leftover.unlink(missing_ok=True)


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
    return _program("nats-server", "2.12 or newer")


def _program(name: str, version: str) -> str:
    found = shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)
    if found is None:
        brings = "`make run` in a clone of the repository brings it"
        raise CannotLaunch(f"{name} was not found: {brings}, or install {version}")
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
