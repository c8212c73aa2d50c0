"""Processes that are killed in the middle: what was begun is completed by the same call, and nothing is done twice."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from contracts.wire.names import new_id
from runwire.errors import ToolError
from services.tables.database import Database
from tests.support.postgres import PostgresServer
from tests.support.waiting import wait_until_blocking
from tests.tables.conftest import Tables

ROOT = Path(__file__).parents[2]
CALLER = """
import json, sys
from services.tables import rows
from services.tables.database import Database
from tests.tables.conftest import Tables
from runwire.errors import ToolError

url, tenant, tool, given = sys.argv[1:]
insert = rows.insert

def told(*args):
    print("insert", flush=True)
    return insert(*args)

rows.insert = told
arguments = json.loads(given)
if "file" in arguments:
    arguments["file"] = arguments["file"].encode()
try:
    Tables(Database(url), tenant).call(tool, **arguments)
except ToolError as error:
    print(error.code, error.retryable, flush=True)
"""
"""Calls a tool in a process of its own, and says when rows are written."""


@contextmanager
def calling(database: Database, tables: Tables, tool: str, **arguments: Any) -> Iterator[subprocess.Popen[str]]:
    """The process, after three writes of rows."""
    url = database.url.render_as_string(hide_password=False)
    command = [sys.executable, "-c", CALLER, url, tables.tenant, tool, json.dumps(arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            for _ in range(3):
                assert process.stdout.readline() == "insert\n"
            yield process
        finally:
            process.kill()


def proposal(table_id: str, count: int = 200) -> dict[str, Any]:
    """Rows to add, one by one."""
    operations = [{"action": "add", "data": {"n": number}} for number in range(count)]
    return {"proposal_id": new_id(), "kind": "data", "table_id": table_id, "operations": operations}


@pytest.mark.sample(1)
def test_an_apply_is_completed_after_a_kill(database: Database, tables: Tables) -> None:
    """No row twice, no operation half done; the report is that of the whole."""
    given = proposal(tables.table(n="number"))
    with calling(database, tables, "apply_proposal", **given) as process:
        process.kill()
    done = tables.call("query_rows", table_id=given["table_id"])
    assert 2 <= done["total"] < 200
    assert done["version"] == done["total"] + 1
    again = tables.call("apply_proposal", **given)
    assert (again["applied"], again["failed"], again["counts"]) == (200, 0, {"add": 200})
    assert [row["n"] for row in tables.rows(given["table_id"])] == list(range(200))


@pytest.mark.sample(1)
def test_an_import_that_was_killed_is_done_once(database: Database, tables: Tables) -> None:
    """Nothing of it was there; the same import does all of it, and the same again nothing."""
    data = "n,t\n" + "".join(f"{n},{'x' if n % 1000 else ''}\n" for n in range(5_000)) + "a,b,c\n" * 3
    with calling(database, tables, "import_csv", file=data, name="T") as process:
        process.kill()
    assert tables.call("list_tables")["tables"] == []
    for is_repeated in (False, True):
        report = tables.call("import_csv", file=data.encode(), name="T")
        assert (report["imported"], report["refused"], report["repeated"]) == (5_000, 3, is_repeated)
    assert tables.call("describe_table", table_id=report["table_id"])["rows"] == 5_000


@pytest.mark.sample(1)
def test_fifty_clients_apply_at_once(database: Database, tables: Tables) -> None:
    """Each proposal twice at the same time: it is applied once, both are told the same, and the counts add up."""
    table_id = tables.table(n="number", rows=[{"n": 0}])
    given = [proposal(table_id, 2) for _ in range(25)]
    for each in given:
        each["operations"].append({"action": "update", "row_id": 1, "changes": {"n": 1}})
    with ThreadPoolExecutor(50) as pool:
        found = list(pool.map(lambda each: Tables(database, tables.tenant).call("apply_proposal", **each), given * 2))
    for first, second in zip(found[:25], found[25:], strict=True):
        assert (first["counts"], first["operations"]) == ({"add": 2, "update": 1}, second["operations"])
    page = tables.call("query_rows", table_id=table_id, limit=100)
    assert (page["total"], page["version"]) == (51, 2 + 75)


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server that a test may kill."""
    with PostgresServer() as found:
        yield found


def test_a_database_that_is_killed_comes_back(server: PostgresServer) -> None:
    """An apply in the middle, and every call until then, fails and may be repeated; then all goes on by itself."""
    database, stop = Database(server.new_database("killed")), threading.Event()
    watching = threading.Thread(target=database.watch, args=(stop,))
    watching.start()
    try:
        wait_until_blocking(lambda: database.problem is None, timeout=30, what="it is ready")
        tables = Tables(database)
        given = proposal(tables.table(n="number"), 300)
        with calling(database, tables, "apply_proposal", **given) as process:
            server.kill()
            said, _ = process.communicate(timeout=60)
        assert said.splitlines()[-1] == "database_unavailable True"
        with pytest.raises(ToolError) as caught:
            tables.call("list_tables")
        assert (caught.value.code, caught.value.retryable) == ("database_unavailable", True)
        wait_until_blocking(lambda: "database_unavailable" in (database.problem or ""), timeout=30, what="it is said")
        server.start()
        wait_until_blocking(lambda: database.problem is None, timeout=60, what="it is ready again")
        assert tables.call("apply_proposal", **given)["applied"] == 300
        assert tables.call("query_rows", table_id=given["table_id"])["total"] == 300
    finally:
        stop.set()
        watching.join()
        database.close()


def test_a_file_that_cannot_be_opened_may_be_mended(tmp_path: Path) -> None:
    """SQLite in a folder that is none yet."""
    (tmp_path / "data").write_text("no folder")
    database, stop = Database(f"sqlite:///{tmp_path / 'data' / 'tables.db'}"), threading.Event()
    watching = threading.Thread(target=database.watch, args=(stop,))
    watching.start()
    try:
        wait_until_blocking(lambda: "exists" in (database.problem or ""), timeout=30, what="the reason is said")
        (tmp_path / "data").unlink()
        wait_until_blocking(lambda: database.problem is None, timeout=30, what="it is ready")
        assert Tables(database).call("list_tables")["tables"] == []
    finally:
        stop.set()
        watching.join()
        database.close()
