"""What of a response is shown after each chunk."""

import dataclasses
from typing import Any

from tests.conformance.adapters.response_markers import scanner_of
from tests.conformance.compare import assert_same


def check(vector: dict[str, Any]) -> None:
    scanner = scanner_of(vector["input"])
    deltas = [scanner.feed(chunk) for chunk in vector["input"]["chunks"]]
    last, response = scanner.finish() if vector["input"]["end"] == "finish" else ("", scanner.cancel())
    found = {"deltas": deltas, "final_delta": last, "result": dataclasses.asdict(response)}
    assert_same(found, vector["expected"], "what is shown")
    assert_same("".join(deltas) + last, response.message, "the deltas together")
