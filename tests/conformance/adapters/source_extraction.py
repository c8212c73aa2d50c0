"""The sources of a run's payload, collected from tools first, then the model's own."""

from typing import Any

from services.planner.run.ending.payload import assemble
from services.shared.redaction.separation import extract_sources
from tests.support.vector_tokens import assert_matches, decoded

FIELDS = {"url": None, "snippet": None, "relevance_score": None}


def check(vector: dict[str, Any]) -> None:
    """Extract from each call that succeeded, then end the run with an answer that may name sources."""
    given = vector["input"]
    collected = [
        source
        for event in given.get("events") or []
        if event.get("error") is None
        for source in extract_sources(decoded(event.get("observation")), event.get("schema"))
    ]
    args = {"answer": "done"} | ({"sources": given["llm_sources"]} if "llm_sources" in given else {})
    payload = assemble(args, sources=collected)
    expected = [FIELDS | source for source in vector["expected"]["sources"]]
    assert_matches([source.model_dump() for source in payload.sources], expected, "sources")
