"""What tables cost beside the bare SQL, on SQLite and PostgreSQL: `python -m benchmarks.tables`.

`query_rows` as its tool runs it, from JSON arguments to a JSON result, beside the statements that somebody would write
by hand on the same data, over the bare driver; an import and an export of the same rows, with the memory that they
take.
"""

import argparse
import asyncio
import json
import sqlite3
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.ratio_tables import Table, ratios, spread
from contracts.wire.names import new_id
from runwire.testing import RecordingContext
from services.tables.csv_tools import tools_of
from services.tables.database import Database
from tests.support.postgres import PostgresServer

COLUMNS = {"name": "text", "amount": "number", "since": "date", "open": "boolean", "note": "text"}
FILE: dict[str, Any] = {"artifact_id": "f" * 32, "mime_type": "text/csv", "size": 1, "sha256": "0" * 64}
_CONTAINING = (("* FROM t WHERE", " ORDER BY id LIMIT 51"), ("count(*) FROM t WHERE", ""))
FIRST_PAGE: dict[str, Any] = {"limit": 50}
QUERIES: dict[str, tuple[dict[str, Any], str]] = {
    "a page": ({**FIRST_PAGE}, "SELECT * FROM t ORDER BY id LIMIT 51; SELECT count(*) FROM t"),
    "a page of a filter": (
        {**FIRST_PAGE, "filters": [{"column": "amount", "op": "greater", "value": 900}]},
        "SELECT * FROM t WHERE amount > 900 ORDER BY id LIMIT 51; SELECT count(*) FROM t WHERE amount > 900",
    ),
    "a sorted page": (
        {**FIRST_PAGE, "sort": [{"column": "amount", "descending": True}]},
        "SELECT * FROM t ORDER BY amount DESC, id LIMIT 51; SELECT count(*) FROM t",
    ),
    "texts that contain": (
        {**FIRST_PAGE, "filters": [{"column": "name", "op": "contains", "value": "99"}]},
        "; ".join(f"SELECT {of} lower(name) LIKE '%99%'{end}" for of, end in _CONTAINING),
    ),
    "a sum": (
        {"limit": 1, "aggregates": [{"function": "sum", "column": "amount"}]},
        "SELECT * FROM t ORDER BY id LIMIT 2; SELECT count(*) FROM t; SELECT sum(amount) FROM t",
    ),
    "500 rows": ({"limit": 500}, "SELECT * FROM t ORDER BY id LIMIT 501; SELECT count(*) FROM t"),
}
Bare = Callable[[str], Any]


def rows_of(count: int) -> Iterator[tuple[str, float, str, bool, str]]:
    """The rows of both sides."""
    for number in range(count):
        day = f"2024-{number % 12 + 1:02}-{number % 28 + 1:02}"
        yield f"Name {number}", number * 7 % 1000 + 0.5, day, number % 3 == 0, f"a note of some length {number % 97}"


def csv_of(count: int) -> bytes:
    """The same as a file."""
    lines = (
        f"{name},{amount},{since},{str(is_open).lower()},{note}"
        for name, amount, since, is_open, note in rows_of(count)
    )
    return "\n".join([",".join(COLUMNS), *lines, ""]).encode()


@contextmanager
def databases(folder: Path, count: int) -> Iterator[dict[str, tuple[Database, Bare]]]:
    """Each database, and what runs a bare statement on a table `t` with the same rows beside it."""
    with PostgresServer() as server:
        server.start()
        connection = psycopg.connect(server.new_database("bare"), autocommit=True)
        bare = sqlite3.connect(folder / "bare.db")
        of = "id INTEGER PRIMARY KEY, name TEXT, amount DOUBLE PRECISION, since TEXT, open BOOLEAN, note TEXT"
        for one in (connection, bare):
            one.execute(f"CREATE TABLE t ({of})")
        numbered = [(number, *row) for number, row in enumerate(rows_of(count), 1)]
        bare.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?)", numbered)
        bare.commit()
        with connection.cursor().copy("COPY t FROM STDIN") as copy:
            for row in numbered:
                copy.write_row(row)
        connection.execute("ANALYZE t")
        yield {
            "SQLite": (
                Database(f"sqlite:///{folder / 'tables.db'}"),
                lambda sql: [bare.execute(each).fetchall() for each in sql.split(";")],
            ),
            "PostgreSQL": (
                Database(server.new_database("tables")),
                lambda sql: [connection.execute(each.encode()).fetchall() for each in sql.split(";")],
            ),
        }
        connection.close()
        bare.close()


def timed(work: Callable[[], Any]) -> float:
    """Milliseconds of one go."""
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


class Side:
    """The tools on one database, in one event loop, as a process serves them."""

    def __init__(self, database: Database, data: bytes) -> None:
        self._tools = {each.name: each for each in tools_of(database)}
        self._loop = asyncio.new_event_loop()
        self._data = data
        self.table_id = ""

    def call(self, tool: str, **arguments: Any) -> Any:
        """The result, as JSON."""
        context = RecordingContext(idempotency_key=new_id(), artifacts={FILE["artifact_id"]: self._data})
        return self._loop.run_until_complete(self._tools[tool].run(arguments, context))

    def import_as(self, name: str) -> None:
        """Import the file."""
        self.table_id = json.loads(self.call("import_csv", file=FILE, name=name))["table_id"]

    def query(self, arguments: dict[str, Any]) -> None:
        """Read a page."""
        self.call("query_rows", table_id=self.table_id, **arguments)

    def export(self, _name: str) -> None:
        """Read all parts of the file, and keep none."""
        cursor, more = None, True
        while more:
            found = json.loads(self.call("export_csv", table_id=self.table_id, page=True, cursor=cursor))
            cursor = found["next_cursor"]
            more = cursor is not None


def most_mb(work: Callable[[], Any]) -> float:
    """The most memory that Python has taken meanwhile."""
    tracemalloc.start(1)
    work()
    most = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    return most


def measure(count: int, rounds: int) -> Iterator[Table]:
    """Queries, then files."""
    queries = Table(f"query_rows of {count:,} rows", ("database", "query", "tool ms", "bare SQL ms", "ratio"))
    note = f"{count:,} rows of {len(csv_of(1_000)) // 1_000} bytes; memory in a run of its own."
    files = Table("CSV files", ("database", "", "rows/s", "seconds", "most memory, MB"), note)
    with tempfile.TemporaryDirectory() as folder, databases(Path(folder), count) as found:
        for name, (database, bare) in found.items():
            database.migrate()
            side = Side(database, csv_of(count))
            works: dict[str, Callable[[str], Any]] = {"import": side.import_as, "export": side.export}
            for what, work in works.items():
                seconds = timed(partial(work, "T")) / 1000
                memory = most_mb(partial(work, "U"))
                files.add(name, what, f"{count / seconds:,.0f}", f"{seconds:.1f}", f"{memory:.1f}")
            for query, (arguments, sql) in QUERIES.items():
                ours, theirs = list[float](), list[float]()
                for _ in range(rounds):
                    ours.append(timed(partial(side.query, arguments)))
                    theirs.append(timed(partial(bare, sql)))
                queries.add(name, query, spread(ours), spread(theirs), spread(ratios(ours, theirs)))
            database.close()
    yield queries
    yield files


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tables", description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    for table in measure(given.rows, given.rounds):
        print(table.text(), flush=True)
