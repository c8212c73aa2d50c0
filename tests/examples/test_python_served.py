"""The Python examples, served as `runwire serve` does and asked as tool_runner asks; and the one that needs no SDK."""

import sys
from typing import Any

import pytest
from nats.aio.client import Client

from examples.demo.table import pieces
from services.shared.json_schema.checks import check_schema, complaints
from tests.examples.asking import ask, call_of, discover, send_raw
from tests.examples.conftest import EXAMPLES, Start, served
from tests.support.nats_server import NatsServer

FILES = ("calculator.py", "search.py", "table.py")


CALLS: list[tuple[str, dict[str, Any], str]] = [
    ("calculate", {"expression": "15% of 80"}, "15% of 80 = 12"),
    ("search_documents", {"query": "How long are finished runs kept?", "limit": 1}, "kept for 30 days"),
    ("analyze_table", {"question": "Which region grew most?"}, "East grew most"),
]


async def test_the_three_tools_answer(client: Client, start: Start, nats_server: NatsServer) -> None:
    """All in one process; what they give fits what they say about themselves. The chart is streamed in pieces."""
    await start(served(*FILES), nats_server)
    for tool, args, answer in CALLS:
        spec = await discover(client, tool)
        assert spec.output_schema is not None
        check_schema(spec.output_schema)
        assert complaints(args, spec.input_schema) == []
        kind, result = await (await ask(client, call_of(tool, args))).end()
        assert kind == "result"
        assert complaints(result, spec.output_schema) == []
        assert answer in result["answer"]
    asked = await ask(client, call_of("analyze_table", {"question": "average units per product"}))
    _, result = await asked.end()
    shown = asked.of("artifact_chunk")
    assert [piece["seq"] for piece in shown] == list(range(len(shown)))
    assert [piece["chunk"] for piece in shown] == list(pieces(result["chart"]))
    assert [piece["done"] for piece in shown] == [False] * (len(shown) - 1) + [True]
    assert {piece["artifact_type"] for piece in shown} == {"echarts"}


async def test_the_data_folder_is_a_setting(
    client: Client, start: Start, nats_server: NatsServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """RUNWIRE_DATA names it."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "mine.csv").write_text("city,people\nA,3\nB,4\n")
    await start(served("table.py"), nats_server, RUNWIRE_DATA=str(folder))
    await discover(client, "analyze_table")
    _, result = await (
        await ask(client, call_of("analyze_table", {"file": "mine.csv", "question": "total people"}))
    ).end()
    assert result["answer"] == "The sum of people is 7."
    kind, failure = await (await ask(client, call_of("analyze_table", {"file": "sales.csv"}))).end()
    assert (kind, failure["code"]) == ("failure", "tool_error")
    assert "there are: mine.csv" in failure["reason"]


async def test_a_tool_without_an_sdk(client: Client, start: Start, nats_server: NatsServer) -> None:
    """It is discovered, answers, refuses, and survives garbage."""
    await start([sys.executable, str(EXAMPLES / "python" / "plain_nats_tool.py")], nats_server)
    spec = await discover(client, "weekday")
    check_schema(spec.input_schema)

    assert await (await ask(client, call_of("weekday", {"date": "2026-02-28"}))).end() == (
        "result",
        {"answer": "2026-02-28 is a Saturday"},
    )
    kind, failure = await (await ask(client, call_of("weekday", {"date": "tomorrow"}))).end()
    assert kind == "failure"
    assert "give a date as" in failure["reason"]
    for garbage in (b"", b"no json", b"[]", b"{}", b'{"args": {"date": 7}}', b'{"args": null}'):
        assert (await (await send_raw(client, "weekday", garbage)).end())[0] == "failure"
