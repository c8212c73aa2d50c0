"""A storm of proposals in which nothing went wrong."""

from typing import Any

from tests.system.proposals.rules import Decided, Proposals, Proposed
from tests.system.traces import StoredRecord

FIRST, SECOND = "a" * 32, "b" * 32


def sound() -> Proposals:
    """Of two rows one is chosen, by two people at once; the second proposal fails once, and is dismissed."""
    applied = {"state": "applied", "operations": [1], "report": {"applied": 1, "failed": 0}, "verdicts": [{"index": 1}]}
    dismissed: dict[str, Any] = {"state": "dismissed", "operations": [], "report": None, "verdicts": []}
    log: list[dict[str, Any]] = [
        {"type": "run_ended"},
        {"type": "proposal_pending", "proposal_id": FIRST},
        {"type": "proposal_applying", "proposal_id": FIRST, "operations": [1]},
        {"type": "proposal_applied", "proposal_id": FIRST},
        {"type": "proposal_pending", "proposal_id": SECOND},
        {"type": "proposal_applying", "proposal_id": SECOND, "operations": [0]},
        {"type": "proposal_released", "proposal_id": SECOND},
        {"type": "proposal_dismissed", "proposal_id": SECOND},
    ]
    return Proposals(
        [],
        proposals=[Proposed(FIRST, "s", ["x-0", "x-1"]), Proposed(SECOND, "s", ["y-0"])],
        decisions=[
            *(Decided(FIRST, "apply", [1], 200, applied) for _ in range(2)),
            Decided(FIRST, "apply", [0, 1], 409, {}),
            Decided(SECOND, "dismiss", None, 200, dismissed),
        ],
        sessions={"s": [StoredRecord(n, "session", 100.0 + n, [event]) for n, event in enumerate(log, 1)]},
        shown={FIRST: applied, SECOND: dismissed},
        rows=["x-1"],
    )
