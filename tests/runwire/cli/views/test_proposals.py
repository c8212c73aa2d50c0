"""A proposal in the terminal: whatever a model has written, each operation is a line."""

import pytest

from runwire.cli.views.pauses import print_proposal
from runwire.client import ProposalView

OPERATIONS = [
    {"action": "update", "row_id": 7, "changes": {"col_1": "b"}},
    7,
    {"action": ["add"], "data": [1]},
    {"action": "add", "data": "text"},
    {"action": "remove", "column_id": ["col_1"]},
    {"action": "reorder", "column_id": "col_1", "after_column_id": {}},
]


def test_columns_have_their_names_whatever_came_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Also once it is applied; and what is no operation keeps its number."""
    view = {"names": {"col_1": "Stage"}}
    print_proposal(
        ProposalView(
            proposal_id="1f" * 16,
            session_id="s",
            run_id="2f" * 16,
            kind="data_proposal",
            summary="Six",
            state="applied",
            data={"operations": OPERATIONS},
            view=view,
        )
    )
    shown = capsys.readouterr().out
    lines = [line.strip() for line in shown.splitlines()[1:]]
    assert lines[0].endswith('row 7  Stage: "b"'), shown
    assert [int(line.split()[0]) for line in lines] == [*range(len(OPERATIONS))], shown
    assert "Stage" in lines[5]
