"""What of a whole response is shown, and what was marked in it."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from services.planner.replies.marked.blocks import Page
from services.planner.replies.marked.scanner import Echoes, MarkerScanner
from services.shared.runs.pages.registry import load_pages
from tests.conformance.compare import assert_same

OF_A_RESPONSE = {"text", "chunks", "end", "page", "page_actions"}


def check(vector: dict[str, Any]) -> None:
    """Read the text at once and character by character: the split must not matter."""
    text = vector["input"]["text"]
    for chunks in ([text], list(text)):
        scanner = scanner_of(vector["input"])
        shown = "".join(map(scanner.feed, chunks))
        last, response = scanner.finish()
        assert_same(dataclasses.asdict(response), vector["expected"], f"the response of {len(chunks)} chunks")
        assert_same(shown + last, response.message, f"what was shown of {len(chunks)} chunks")


def scanner_of(given: dict[str, Any]) -> MarkerScanner:
    """A scanner for the page of a vector. All further texts that it names were said in the conversation."""
    known = load_pages().pages.get(given["page"])
    page = Page(() if known is None else known.payloads, frozenset(given.get("page_actions") or ()))
    further = [value for key, value in given.items() if key not in OF_A_RESPONSE]
    return MarkerScanner(page, Echoes(list(texts_in(further))))


def texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from texts_in(each)
