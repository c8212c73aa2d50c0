"""The tools on both databases. All tests share them, each with a tenant of its own."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from contracts.wire.names import new_id
from runwire.testing import RecordingContext
from services.tables.csv_tools import tools_of
from services.tables.database import Database
from tests.support.postgres import PostgresServer

FILE_ID = "f" * 32


class Tables:
    """The tools as a tenant calls them."""

    def __init__(self, database: Database, tenant: str = "") -> None:
        self.database, self.tenant = database, tenant or f"t{new_id()}"
        self._tools = {tool.name: tool for tool in tools_of(database)}

    def call(self, tool: str, key: str = "", /, *, file: bytes | None = None, **arguments: Any) -> Any:
        """The result of a call; `key`: its idempotency key. `file`: the bytes of an artifact in its arguments."""
        self.context = RecordingContext(tenant=self.tenant, idempotency_key=key, artifacts={FILE_ID: file or b""})
        if file is not None:
            ref = {"artifact_id": FILE_ID, "mime_type": "text/csv", "size": len(file), "sha256": "0" * 64}
            arguments["file"] = ref
        return json.loads(asyncio.run(self._tools[tool].run(arguments, self.context)))

    def emitted(self, stream_id: str) -> str:
        """The artifact that the last call has streamed."""
        assert stream_id in self.context.finished
        return "".join(self.context.pieces[stream_id])

    def table(self, title: str = "T", /, *, rows: Sequence[dict[str, Any]] = (), **columns: Any) -> str:
        """The id of a new table with these columns, by name their type or more of them, and these rows."""
        of = [{"name": key, **(kind if isinstance(kind, dict) else {"type": kind})} for key, kind in columns.items()]
        table_id: str = self.call("create_table", name=title, columns=of)["table_id"]
        if rows:
            added = [{"action": "add", "data": row} for row in rows]
            done = self.call("apply_proposal", proposal_id=new_id(), kind="data", table_id=table_id, operations=added)
            assert done["failed"] == 0, done
        return table_id

    def rows(self, table_id: str, **query: Any) -> list[dict[str, Any]]:
        return [row["cells"] for row in self.call("query_rows", table_id=table_id, limit=500, **query)["rows"]]

    def columns(self, table_id: str) -> dict[str, str]:
        """Ids of columns by name, in their order."""
        return {each["name"]: each["column_id"] for each in self.call("describe_table", table_id=table_id)["columns"]}


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """A migrated database of each kind."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('tables') / 'tables.db'}"
    else:
        # Made again where tests of the other kind come between.
        url = request.getfixturevalue("postgres").new_database(f"t{new_id()}")
    found = Database(url)
    found.migrate()
    yield found
    found.close()


@pytest.fixture
def tables(database: Database) -> Tables:
    """The tools, for a tenant that has nothing yet."""
    return Tables(database)
