"""The Python examples, served as `runwire serve` does and asked as tool_runner asks; and the one that needs no SDK."""

from typing import Any

from nats.aio.client import Client

from examples.demo.table import pieces
from services.shared.json_schema.checks import check_schema, complaints
from tests.examples.conftest import Start, served
from tests.runwire.serving.conftest import asking, call, discover
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
        kind, result = await call(client, tool, args)
        assert kind == "result"
        assert complaints(result, spec.output_schema) == []
        assert answer in result["answer"]
    asked = await asking(client, "analyze_table", {"question": "average units per product"})
    _, result = await asked.end()
    shown = asked.of("artifact_chunk")
    assert [piece["seq"] for piece in shown] == list(range(len(shown)))
    assert [piece["chunk"] for piece in shown] == list(pieces(result["chart"]))
    assert [piece["done"] for piece in shown] == [False] * (len(shown) - 1) + [True]
    assert {piece["artifact_type"] for piece in shown} == {"echarts"}
