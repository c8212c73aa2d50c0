"""The S3 server that `runwire up` starts: `rclone serve s3` on a folder.

Rule 1: it never runs without keys, since it would then be open to every program on the machine; they are not on its
command line.
Rule 2: it does not read the user's rclone configuration.
Rule 3: files that a killed server left half written (`.rclone_temp_*`, never listed, never acknowledged) are removed
before the next start.
"""

import os
import shutil
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from runwire.local.data_folder import secret

_HALF_WRITTEN = ".rclone_temp_*"


@dataclass(frozen=True, slots=True)
class Keys:
    """The credentials that the server and its only client share."""

    access: str
    secret: str


def find_rclone() -> str | None:
    """The rclone of the Python environment, else of the PATH; None where there is none."""
    return shutil.which("rclone", path=sysconfig.get_path("scripts")) or shutil.which("rclone")


def keys_of(file: Path) -> Keys:
    """Read the keys of a data folder, or create them, readable by their owner only."""
    return Keys(**secret(file, lambda: {"access": os.urandom(10).hex(), "secret": os.urandom(20).hex()}))


def rclone_command(rclone: str, folder: Path, port: int) -> list[str]:
    """The command that serves `folder` on a loopback port.

    Writes are not cached, since the cache acknowledges what is not stored yet. ETags are not MD5 sums, since nothing
    reads them and the server would read a whole object for its first one, 80 ms for 50 MB.
    """
    options = {"--addr": f"127.0.0.1:{port}", "--vfs-cache-mode": "off", "--etag-hash": ""}
    return [rclone, "serve", "s3", str(folder), *(part for option in options.items() for part in option)]


def rclone_environment(keys: Keys) -> Mapping[str, str]:
    """The environment of the command. The value is a line of CSV, hence the quotes."""
    return {"RCLONE_CONFIG": os.devnull, "RCLONE_AUTH_KEY": f'"{keys.access},{keys.secret}"'}


def store_environment(keys: Keys, port: int) -> Mapping[str, str]:
    """The settings with which the artifact store finds this server."""
    return {
        "RUNWIRE_S3_ENDPOINT": f"http://127.0.0.1:{port}",
        "RUNWIRE_S3_ACCESS_KEY": keys.access,
        "RUNWIRE_S3_SECRET_KEY": keys.secret,
    }


def prepare(folder: Path) -> None:
    """Create the folder, and remove what a killed server left half written. The server must not run."""
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.rglob(_HALF_WRITTEN):
        leftover.unlink(missing_ok=True)
