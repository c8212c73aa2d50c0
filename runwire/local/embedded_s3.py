"""The S3 server of a machine without one: `rclone serve s3` on a folder, fenced for the way in which the artifact store uses it.

Rule 1: it never runs without keys (it would be open to everybody), and they are not on its command line.
Rule 2: it reads no configuration of the machine's owner, whose remotes are no business of ours.
Rule 3: what a killed server leaves half written (`.rclone_temp_*`, never listed, never acknowledged) goes before the
next start.
"""

import os
import secrets
import shutil
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from runwire.local.data_folder import secret

_LEFTOVERS = ".rclone_temp_*"


@dataclass(frozen=True, slots=True)
class Keys:
    """What the server and its only client share."""

    access: str
    secret: str


def find_rclone() -> str | None:
    """The rclone of the environment's wheel, else of the PATH; None where there is none."""
    return shutil.which("rclone", path=sysconfig.get_path("scripts")) or shutil.which("rclone")


def keys_of(file: Path) -> Keys:
    """Read the keys of a data folder, or make them, readable for their owner alone."""
    return Keys(**secret(file, lambda: {"access": secrets.token_hex(10), "secret": secrets.token_hex(20)}))


def rclone_command(rclone: str, folder: Path, port: int) -> list[str]:
    """The command that serves `folder` on a loopback port.

    Caching of writes stays off: it acknowledges what is not there yet. And no MD5 for ETags, which nobody reads: the
    server would go through a whole object when it is first looked at, 80 ms for 50 MB.
    """
    return [
        rclone,
        "serve",
        "s3",
        str(folder),
        "--addr",
        f"127.0.0.1:{port}",
        "--vfs-cache-mode",
        "off",
        "--etag-hash",
        "",
    ]


def rclone_environment(keys: Keys) -> Mapping[str, str]:
    """What goes with the command. The quotes belong to it: the value is a line of CSV."""
    return {"RCLONE_CONFIG": os.devnull, "RCLONE_AUTH_KEY": f'"{keys.access},{keys.secret}"'}


def store_environment(keys: Keys, port: int) -> Mapping[str, str]:
    """What the artifact store needs in order to find this server."""
    return {
        "RUNWIRE_S3_ENDPOINT": f"http://127.0.0.1:{port}",
        "RUNWIRE_S3_ACCESS_KEY": keys.access,
        "RUNWIRE_S3_SECRET_KEY": keys.secret,
    }


def prepare(folder: Path) -> None:
    """Make the folder, and remove what a killed server left half written. The server must not run."""
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.rglob(_LEFTOVERS):
        leftover.unlink(missing_ok=True)
