"""The database: SQLite in a file, or PostgreSQL.

Rule 1: a read sees one state, a write is one transaction, and one write of SQLite waits for the other in this process.
Rule 2: whatever the database cannot do now is `DatabaseUnavailable`; a commit whose answer was lost may have happened,
so writes save their outcome (`outcomes`) and may be repeated.
Rule 3: migrations run in one transaction, with foreign keys off on SQLite, since a rebuilt table is dropped once; they
are checked before the commit. Of several processes that start at once one migrates.
"""

import contextlib
import logging
import os
import re
import threading
import time
from collections.abc import Callable
from operator import methodcaller
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import event, exc

from contracts.wire.names import unix_ms
from services.tables.errors import DatabaseUnavailable
from services.tables.schema import outcomes

logger = logging.getLogger("runwire.tables")

T = TypeVar("T")
Work = Callable[[sa.Connection], T]

MIGRATIONS = Path(__file__).parent / "migrations"
_MIGRATION_LOCK = 7_263_001
_ATTEMPTS = 5
_CHECK_EVERY_S, _CLEAN_EVERY_S = 1.0, 3600.0
_OUTCOME_RETENTION_MS = 90 * 24 * 3600 * 1000
_REQUESTS_FAULTS = (exc.IntegrityError, exc.ProgrammingError, exc.DataError)
"""What the request is at fault for, or another transaction; every other error of a driver is the database's."""
_OLDEST = 13
_REMEDIES = {
    "25006": "name a server and a user that may write",
    "3F000": "create the schema, or set `search_path` of the user to one that exists",
    "42501": "let the user create tables there: GRANT CREATE ON SCHEMA public TO the user",
}
"""What has to be done about an SQLSTATE."""
_NO_ENTRY = {
    r'database ".*" does not exist': "CREATE DATABASE name ENCODING 'UTF8' TEMPLATE template0 makes it",
    r'role ".*" does not exist': "CREATE ROLE name LOGIN PASSWORD '…' makes it",
    r"password authentication failed": "RUNWIRE_TABLES_PASSWORD_FILE, or the URL, has another password",
    r"no pg_hba\.conf entry": "let the user in, in pg_hba.conf of the server",
}
"""The same, for a server that refuses the connection: no SQLSTATE is known by then, only what it says."""


def configured() -> "Database":
    """Return the database that the environment names. Raises SystemExit for a URL that cannot be used."""
    folder = os.environ.get("RUNWIRE_DATA_DIR") or ".runwire"
    url = os.environ.get("RUNWIRE_TABLES_URL") or f"sqlite:///{Path(folder).resolve() / 'tables.db'}"
    try:
        file = os.environ.get("RUNWIRE_TABLES_PASSWORD_FILE")
        return Database(url, Path(file).read_text(encoding="utf-8").strip() if file else None)
    except (exc.ArgumentError, ValueError) as error:
        raise SystemExit(f"RUNWIRE_TABLES_URL: {error}") from None
    except OSError as error:
        raise SystemExit(f"RUNWIRE_TABLES_PASSWORD_FILE: {error.filename} cannot be read ({error.strerror})") from None


class Database:
    """Connections to one database, and whether it can be used. Nothing connects before the first use."""

    def __init__(self, url: str, password: str | None = None) -> None:
        """Raises ValueError for a URL of another database."""
        self.url = sa.make_url(url)
        if self.url.drivername in {"postgresql", "postgres"}:
            self.url = self.url.set(drivername="postgresql+psycopg")
        if self.url.drivername not in {"sqlite", "postgresql+psycopg"}:
            raise ValueError("the URL begins with sqlite:/// or postgresql://")
        if password is not None:
            self.url = self.url.set(password=password)
        self.is_sqlite = self.url.drivername == "sqlite"
        self._engine = self._made(foreign_keys=True)
        self._turn = threading.Lock()
        self._is_migrated = False
        self.problem: str | None = "database_unavailable: not tried yet"

    def read(self, work: Work[T]) -> T:
        """Return what `work` reads. It is repeated if a table has changed its columns meanwhile."""
        return self._carried_out(work, writes=False)

    def write(self, work: Work[T]) -> T:
        """Carry out `work` in one transaction, and again where another one has written the same meanwhile."""
        with self._turn if self.is_sqlite else contextlib.nullcontext():
            return self._carried_out(work, writes=True)

    def migrate(self) -> None:
        """Bring the schema to the newest version. Raises DatabaseUnavailable."""
        engine = self._made(foreign_keys=False)
        try:
            if self.is_sqlite and self.url.database:
                Path(self.url.database).parent.mkdir(parents=True, exist_ok=True)
            with engine.connect().execution_options(writes=True) as connection, connection.begin():
                if not self.is_sqlite:
                    _check_server(connection)
                    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
                config = Config(attributes={"connection": connection})
                config.set_main_option("script_location", str(MIGRATIONS))
                command.upgrade(config, "head")
                if self.is_sqlite and (broken := connection.exec_driver_sql("PRAGMA foreign_key_check").all()):
                    raise RuntimeError(f"the migration leaves rows without their parent: {broken[:5]}")
            self._is_migrated = True
        except (exc.DBAPIError, exc.TimeoutError, OSError) as error:
            raise _unavailable(error) from error
        finally:
            engine.dispose()

    def watch(self, stop: threading.Event) -> None:
        """Migrate once the database answers, then see every second whether it does, until `stop`."""
        cleaned_at = 0.0
        while not stop.is_set():
            try:
                if not self._is_migrated:
                    self.migrate()
                self.read(lambda connection: connection.execute(sa.text("SELECT 1")))
                self._note(None)
                if not cleaned_at or time.monotonic() - cleaned_at > _CLEAN_EVERY_S:
                    # Nobody repeats these writes any more.
                    old = outcomes.c.saved_at < unix_ms() - _OUTCOME_RETENTION_MS
                    self.write(methodcaller("execute", outcomes.delete().where(old)))
                    cleaned_at = time.monotonic()
            except DatabaseUnavailable as error:
                self._note(f"database_unavailable: {error.reason}")
            except (CommandError, RuntimeError, exc.SQLAlchemyError) as error:
                self._note(f"the schema cannot be migrated: {error}")
            stop.wait(_CHECK_EVERY_S)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def _note(self, problem: str | None) -> None:
        if (problem is None) != (self.problem is None):
            logger.warning("tables are %s", f"not ready: {problem}" if problem else "ready")
        self.problem = problem

    def _carried_out(self, work: Work[T], *, writes: bool) -> T:
        options: dict[str, Any] = {"writes": writes}
        if not writes and not self.is_sqlite:
            options["isolation_level"] = "REPEATABLE READ"
        for attempt in range(_ATTEMPTS):
            try:
                with self._engine.connect().execution_options(**options) as connection, connection.begin():
                    return work(connection)
            except _REQUESTS_FAULTS:  # Another transaction was first, with columns or with the same key.
                if attempt == _ATTEMPTS - 1:
                    raise
            except (exc.DBAPIError, exc.TimeoutError, self._engine.dialect.loaded_dbapi.Error) as error:
                raise _unavailable(error) from error
        raise AssertionError

    def _made(self, *, foreign_keys: bool) -> sa.Engine:
        if not self.is_sqlite:
            given = {name: value for name, value in self.url.query.items() if isinstance(value, str)}
            options = f"-c statement_timeout=25000 -c lock_timeout=20000 {given.get('options', '')}"
            defaults = {"connect_timeout": 3, "application_name": "runwire-tables"}
            return sa.create_engine(
                self.url,
                pool_size=8,
                max_overflow=24,
                pool_timeout=10,
                pool_pre_ping=True,
                connect_args={**defaults, **given, "options": options, "client_encoding": "utf8"},
            )
        engine = sa.create_engine(self.url, pool_size=8, max_overflow=56, connect_args={"timeout": 20})

        @event.listens_for(engine, "connect")
        def _on_connect(connection: Any, _record: object) -> None:
            connection.isolation_level = None  # Its own transactions begin too late, and end before a change of schema.
            # 16 MiB of pages: a table of 100,000 rows is read twice for a sum, and stays in memory between the two.
            keys, cache = f"foreign_keys={'ON' if foreign_keys else 'OFF'}", "cache_size=-16384"
            for pragma in ("journal_mode=WAL", "synchronous=FULL", keys, cache):
                connection.execute(f"PRAGMA {pragma}")

        @event.listens_for(engine, "begin")
        def _on_begin(connection: sa.Connection) -> None:
            writes = connection.get_execution_options().get("writes")
            connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

        return engine


def _check_server(connection: sa.Connection) -> None:
    """Raise DatabaseUnavailable for a server that is too old, and for a database that cannot hold every text."""
    version, encoding = (
        connection.exec_driver_sql(f"SHOW server_{name}").scalar_one() for name in ("version", "encoding")
    )
    if int(version.partition(".")[0]) < _OLDEST:
        raise DatabaseUnavailable(f"it is PostgreSQL {version}", f"use PostgreSQL {_OLDEST} or newer")
    if encoding != "UTF8":
        remedy = "make one that can: CREATE DATABASE name ENCODING 'UTF8' TEMPLATE template0"
        raise DatabaseUnavailable(f"its encoding {encoding} cannot hold every text", remedy)


def _unavailable(error: Exception) -> DatabaseUnavailable:
    cause = getattr(error, "orig", None) or error
    reason, *_ = str(cause).strip().splitlines() or [type(cause).__name__]
    remedy = _REMEDIES.get(getattr(cause, "sqlstate", None) or "", "")
    for said, mend in _NO_ENTRY.items():
        if refused := re.search(f"(?<=FATAL:).*{said}.*", reason):
            reason, remedy = refused[0].strip(), f"{mend}; or correct RUNWIRE_TABLES_URL"
    return DatabaseUnavailable(reason[:200], remedy)
