"""A real PostgreSQL server on loopback that a test may kill and start again."""

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import psycopg

from .needs import find_program, skip
from .server_process import ServerProcess


def program(name: str) -> Path:
    """A program of PostgreSQL: on PATH, else of the newest package of Debian. Without it the test is skipped."""
    packaged = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[4]))
    return find_program(name) or next(reversed(packaged), None) or skip("PostgreSQL is not installed")


class PostgresServer(ServerProcess):
    """One server. It refuses root, so root starts it as another user."""

    def __init__(self) -> None:
        """Make its files, in a folder that another user may enter, as pytest's may not be."""
        self._folder = Path(tempfile.mkdtemp(prefix="runwire-postgres-"))
        super().__init__(self._folder / "postgres.log")
        self._data = self._folder / "data"
        self._user = "nobody" if os.geteuid() == 0 else None
        if self._user:
            shutil.chown(self._folder, self._user)
        options = ["-U", "runwire", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "-N"]
        command = [str(program("initdb")), "-D", str(self._data), *options]
        subprocess.run(command, check=True, capture_output=True, user=self._user, cwd=self._folder)

    def __exit__(self, *_: object) -> None:
        """Remove its files too."""
        self._end(signal.SIGINT)
        shutil.rmtree(self._folder, ignore_errors=True)

    def url(self, database: str = "postgres") -> str:
        """Where a client connects."""
        return f"postgresql://runwire@127.0.0.1:{self.port}/{database}"

    def new_database(self, name: str) -> str:
        """Make an empty database, and return its URL."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
        return self.url(name)

    def start(self) -> None:
        """Start the server and return once it answers. Call it in the main thread, with which it ends."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": "",
            "max_connections": 200,
            "fsync": "off",  # What a killed server has written, the kernel keeps.
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        self._launch([str(program("postgres")), "-D", str(self._data), *options], self._data, user=self._user)

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url(), connect_timeout=1).close()
        except psycopg.OperationalError:
            return False
        return True
