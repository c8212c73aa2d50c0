"""What showing an answer while it is written costs: seconds per megabyte of reply, and microseconds per chunk.

Beside it, the obvious alternative: parse everything received so far, leniently, once per chunk, and show what the
answer grew by. That is `pydantic_core.from_json(..., allow_partial="trailing-strings")`, the fastest such parser at
hand. It is run on short replies only, since its work grows with the square of the reply. And the scanner of marked
responses, beside the stream of an answer in chunks of the same size. Run: python -m benchmarks.answer_stream
"""

import time
from collections.abc import Callable

import pydantic_core

from services.planner.replies.answer_stream import AnswerStream
from services.planner.replies.marked.blocks import Page
from services.planner.replies.marked.scanner import MarkerScanner

MB = 1 << 20
HEAD = '{"next_node": "final_response", "args": {"answer": "'
REPLIES: dict[str, Callable[[int], str]] = {
    "an answer": lambda size: HEAD + "word " * (size // 5) + '"}}',
    "a Markdown answer": lambda size: HEAD + "- a point of some length, in words\\n" * (size // 36) + '"}}',
    "an answer all in escapes": lambda size: HEAD + "\\u00e9" * (size // 6) + '"}}',
    "args before the node": lambda size: (
        '{"args": {"answer": "' + "word " * (size // 5) + '"}, "next_node": "final_response"}'
    ),
    "a tool call": lambda size: '{"next_node": "save", "args": {"text": "' + "word " * (size // 5) + '"}}',
}
MARKED: dict[str, Callable[[int], str]] = {
    "prose": lambda size: "Some words of an answer. " * (size // 25),
    "Markdown": lambda size: "- **A point** of 12 words, `code` too\n" * (size // 37),
    "a proposal": lambda size: 'DATA_PROPOSAL: {"operations": ["' + "word " * (size // 5) + '"]}',
}
PLAIN = REPLIES["an answer"]
CHUNKS = (4, 64, 4096)
COMPARED = (4 << 10, 16 << 10, 64 << 10, 256 << 10)


def stream(text: str, chunk: int) -> int:
    """Read a reply as the planner does; return how many characters were shown."""
    answer = AnswerStream()
    return sum(len(answer.feed(text[start : start + chunk])) for start in range(0, len(text), chunk))


def scan(text: str, chunk: int) -> int:
    """Read a marked response; return how many characters were shown."""
    scanner = MarkerScanner(Page(("data_proposal",)))
    return sum(len(scanner.feed(text[start : start + chunk])) for start in range(0, len(text), chunk))


def parse_again(text: str, chunk: int) -> int:
    """Parse what has arrived, again with every chunk; return how many characters were shown."""
    received = bytearray()
    shown = 0
    for start in range(0, len(text), chunk):
        received += text[start : start + chunk].encode()
        args = pydantic_core.from_json(bytes(received), allow_partial="trailing-strings").get("args") or {}
        shown = len(args.get("answer", ""))
    return shown


def seconds(work: Callable[[str, int], int], text: str, chunk: int, least: float = 0.2) -> float:
    """The shortest time of one pass, out of as many as fit into `least` seconds, three at least."""
    times: list[float] = []
    while sum(times) < least or len(times) < 3:
        begin = time.perf_counter()
        work(text, chunk)
        times.append(time.perf_counter() - begin)
    return min(times)


def main() -> None:
    """Print the tables."""
    print(f"{'reply of 1 MB':<26}{'chunk':>7}{'s/MB':>9}{'us/chunk':>10}{'examined':>11}")
    for name, make in REPLIES.items():
        text = make(MB)
        for chunk in CHUNKS:
            took = seconds(stream, text, chunk)
            once = AnswerStream()
            once.feed(text)
            per_chunk = took / (len(text) / chunk) * 1e6
            examined = once.characters_examined / len(text)
            print(f"{name:<26}{chunk:>7}{took * MB / len(text):>9.3f}{per_chunk:>10.2f}{examined:>10.2f}x")
    print(f"\n{'an answer, chunks of 16':<26}{'KB':>7}{'stream s':>10}{'again s':>10}{'again/stream':>14}")
    for size in COMPARED:
        text = REPLIES["an answer"](size)
        assert stream(text, 16) == parse_again(text, 16)  # noqa: S101, both show the same
        mine, other = seconds(stream, text, 16), seconds(parse_again, text, 16)
        print(f"{'':<26}{size >> 10:>7}{mine:>10.4f}{other:>10.4f}{other / mine:>13.1f}x")
    print(f"\n{'marked text, 64 KB':<26}{'chunk':>7}{'us/chunk':>10}{'beside an answer':>18}")
    for name, make in MARKED.items():
        for chunk in CHUNKS:
            count = (64 << 10) / chunk
            mine, other = (seconds(way, of(64 << 10), chunk) / count for way, of in ((scan, make), (stream, PLAIN)))
            print(f"{name:<26}{chunk:>7}{mine * 1e6:>10.2f}{mine / other:>17.1f}x")


if __name__ == "__main__":
    main()
