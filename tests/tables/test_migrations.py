"""From the first schema to another one, with data: nothing is lost, and a migration that fails has changed nothing."""

import shutil
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from contracts.wire.names import new_id
from services.tables import database as databases
from services.tables import schema
from services.tables.database import Database
from services.tables.errors import DatabaseUnavailable
from tests.support.postgres import PostgresServer
from tests.tables.conftest import Tables

SECOND = """
import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade():
    with op.batch_alter_table("tables") as batch:
        batch.alter_column("description", new_column_name="purpose")
        batch.drop_column("row_count")
        batch.add_column(sa.Column("owner", sa.String(40)))
    {last}
"""
COUNTED = ("tables", "columns", "outcomes")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'tables.db'}"
    postgres: PostgresServer = request.getfixturevalue("postgres")
    return postgres.new_database(new_id())


def test_a_second_schema_keeps_all_data(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table that others refer to is rebuilt; its constraints are there as before."""
    database = Database(url)
    database.migrate()
    for title in ("A", "B"):
        tables = Tables(database)
        columns: dict[str, Any] = {f"c{number}": "text" for number in range(25)}
        table_id = tables.table(title, rows=[{"c0": f"{title}{number}"} for number in range(20)], **columns)
    before = counts(database, table_id)
    migrations = tmp_path / "migrations"
    shutil.copytree(databases.MIGRATIONS, migrations)
    monkeypatch.setattr(databases, "MIGRATIONS", migrations)
    second = migrations / "versions" / "0002_second.py"

    second.write_text(SECOND.format(last='raise ValueError("in the middle")'))
    with pytest.raises(ValueError, match="in the middle"):
        database.migrate()
    assert counts(database, table_id) == before
    assert tables.rows(table_id)[0]["c0"] == "B0", "it is as it was"

    second.write_text(SECOND.format(last=""))
    for _ in range(2):  # The second time nothing is left to do.
        database.migrate()
    assert counts(database, table_id) == before
    engine = sa.create_engine(database.url)
    found = sa.inspect(engine)
    assert {"purpose", "owner"} <= {each["name"] for each in found.get_columns("tables")}
    assert [each["name"] for each in found.get_unique_constraints("tables")] == ["uq_tables_tenant_folded_name"]
    assert [each["referred_table"] for each in found.get_foreign_keys("columns")] == ["tables"]
    assert [each["name"] for each in found.get_indexes("outcomes")] == ["ix_outcomes_saved_at"]
    engine.dispose()
    database.close()


def counts(database: Database, table_id: str) -> list[int]:
    """How many rows the tables of the schema hold, and one table of a tenant."""
    of = [schema.metadata.tables[name] for name in COUNTED] + [sa.table(f"rows_{table_id}")]
    return database.read(
        lambda it: [it.execute(sa.select(sa.func.count()).select_from(each)).scalar_one() for each in of]
    )


MADE_FOR = {
    "SQL_ASCII": ("its encoding SQL_ASCII cannot hold every text", "ENCODING 'UTF8'"),
    "LATIN1": ("its encoding LATIN1 cannot hold every text", "ENCODING 'UTF8'"),
    "reader": ("cannot execute CREATE TABLE in a read-only transaction", "a user that may write"),
    "stranger": ("permission denied for schema public", "GRANT CREATE ON SCHEMA public"),
    "lost": ("no schema has been selected to create in", "create the schema"),
}
"""An encoding, or a user who does not fit -> what is wrong, and what to do."""


@pytest.mark.parametrize("kind", MADE_FOR)
def test_a_database_that_does_not_fit_is_refused_with_the_remedy(postgres: PostgresServer, kind: str) -> None:
    """By `migrate`, and by what the service says of its health."""
    name, is_encoding = f"t{new_id()}", kind.isupper()
    encoding = f"ENCODING '{kind}'" if is_encoding else ""
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0 LOCALE 'C' {encoding}".encode())
        if not is_encoding:
            connection.execute(f"DROP ROLE IF EXISTS {kind}; CREATE ROLE {kind} LOGIN".encode())
            connection.execute(f"ALTER ROLE {kind} SET default_transaction_read_only = {kind == 'reader'}".encode())
    url = postgres.url(name)
    if not is_encoding:
        url = url.replace("runwire@", f"{kind}@") + ("?options=-csearch_path%3Dnowhere" * (kind == "lost"))
    database = Database(url)
    with pytest.raises(DatabaseUnavailable) as refused:
        database.migrate()
    database.close()
    assert all(text in refused.value.reason for text in MADE_FOR[kind]), refused.value.reason


@pytest.mark.parametrize(
    ("database", "role", "wrong", "remedy"),
    [
        ("nothing", "runwire", 'cannot be used: database "nothing" does not exist', "CREATE DATABASE"),
        ("postgres", "nobody", 'cannot be used: role "nobody" does not exist', "CREATE ROLE"),
    ],
)
def test_what_the_url_names_and_the_server_lacks_is_named(
    postgres: PostgresServer, database: str, role: str, wrong: str, remedy: str
) -> None:
    """The server answers: it is not what is missing."""
    missing = Database(postgres.url(database).replace("runwire@", f"{role}@"))
    with pytest.raises(DatabaseUnavailable) as refused:
        missing.migrate()
    missing.close()
    assert wrong in refused.value.reason
    assert remedy in refused.value.reason
    assert "RUNWIRE_TABLES_URL" in refused.value.reason


def test_a_server_that_is_too_old_is_refused(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names its version."""
    monkeypatch.setattr(databases, "_OLDEST", 999)
    database = Database(postgres.new_database(new_id()))
    with pytest.raises(DatabaseUnavailable, match=r"it is PostgreSQL \d+.*; use PostgreSQL 999 or newer"):
        database.migrate()
    database.close()
