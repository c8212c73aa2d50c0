"""What commands share: ids that are cut."""

from collections.abc import AsyncIterator

import pytest
import typer

from contracts.runs.requests import RunStatus
from runwire.cli.frame import Id
from runwire.client import Client
from runwire.errors import NotFound

WHOLE = "f" * 32
TWO_RUNS = ["abc1", "abd2"]


@pytest.mark.parametrize(
    ("ids", "text", "meant"),
    [
        (TWO_RUNS, "newest", "abc1"),
        (TWO_RUNS, "abd", "abd2"),
        (["abc", "ab"], "ab", "ab"),
        (TWO_RUNS, "ab", typer.BadParameter),
        (TWO_RUNS, "b", NotFound),
        ([], "newest", NotFound),
        (TWO_RUNS, "", ""),
        ([], WHOLE, WHOLE),
    ],
)
async def test_a_cut_id(ids: list[str], text: str, meant: str | type[Exception]) -> None:
    """It stands for the one that begins so; an empty one, as of a variable that is not set, for none."""

    async def listed(_client: Client) -> AsyncIterator[RunStatus]:
        for run_id in ids:
            yield RunStatus(run_id=run_id, status="done", requested_at=0)

    async with Client() as client:
        whole = Id("run", "run_id", listed).whole(client, text)
        if isinstance(meant, str):
            assert await whole == meant
        else:
            with pytest.raises(meant, match="abc1, abd2" if meant is typer.BadParameter else "there is no run"):
                await whole
