"""Schedules and webhooks from the command line, beside a running `runwire up`."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.runwire.conftest import document, printed, runwire
from tests.support.waiting import wait_until_blocking

pytestmark = pytest.mark.xdist_group("cli")


def test_a_schedule_is_added_listed_and_removed(up: Path) -> None:
    """For people and for programs."""
    options = ("--cron", "30 2 * * *", "--time-zone", "Europe/Berlin", "--name", "nightly")
    added = printed("schedule", "add", "What is 6*7?", *options, data=up)
    lines = dict(line.split(maxsplit=1) for line in added.splitlines())
    assert (lines["name"], lines["times"]) == ("nightly", "30 2 * * * Europe/Berlin")
    assert added.count("next") == 3
    schedule = lines["schedule"]
    listed = document("schedule", "list", data=up)
    (shown,) = [each for each in listed if each["schedule_id"] == schedule]
    assert document("schedule", "show", schedule, data=up)["run"] == shown["run"]
    assert f"{schedule}  {shown['next'][0]}" in runwire("schedule", "list", data=up).stdout
    assert runwire("schedule", "remove", schedule, data=up).returncode == 0
    gone = runwire("schedule", "show", schedule, data=up)
    assert (gone.returncode, "no such run, session, task, group, schedule" in gone.stderr) == (6, True)


def test_a_one_off_starts_its_run(up: Path) -> None:
    """And a webhook says where its deliveries go."""
    for seconds in (1.5, 10, 30):  # On a busy machine the command itself takes longer than the first.
        at = (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()
        added = runwire("schedule", "add", "What is 6*7?", "--at", at, "-o", "json", data=up)
        if added.returncode == 0:
            break
    schedule = json.loads(added.stdout)["schedule_id"]
    hook = runwire("schedule", "add", "What is 2+2?", "--webhook", data=up).stdout
    assert "/v1/hooks/" in hook
    assert "whsec_" in hook

    def last_run() -> str | None:
        shown: dict[str, str | None] = document("schedule", "show", schedule, data=up)
        return shown["last_run"]

    run = wait_until_blocking(last_run, what="the schedule has fired")
    assert "6*7 = 42" in runwire("tail", str(run), data=up).stdout
    assert str(run) in runwire("schedule", "show", schedule, data=up).stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--cron", "every night"), "five fields"),
        (("--at", "2020-01-01T00:00:00Z"), "past"),
        (("--cron", "0 2 * * *", "--time-zone", "Mars"), "time zone"),
        ((), "cron, at and webhook"),
    ],
)
def test_what_is_wrong_is_said(up: Path, options: tuple[str, ...], said: str) -> None:
    """By the field."""
    refused = runwire("schedule", "add", "Now?", *options, data=up)
    assert (refused.returncode, said in refused.stderr) == (6, True), refused.stderr
