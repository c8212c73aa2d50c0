"""Results in transit."""

from services.tool_runner.transports.driver import ResultBody


def test_parts_beyond_memory_come_back_in_order() -> None:
    """They are held in a file."""
    body = ResultBody()
    parts = [bytes([number]) * (1 << 20) for number in range(6)]
    for part in parts:
        body.add(part)
    assert (body.size, body.read()) == (6 << 20, b"".join(parts))
    body.close()


def test_a_result_in_one_message_is_held_as_it_came() -> None:
    """Until it is closed."""
    body = ResultBody(b"42")
    assert (body.size, body.read()) == (2, b"42")
    body.close()
    assert body.read() == b""
