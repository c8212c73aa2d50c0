"""Schedules and webhooks from the command line, beside a running `runwire up`."""

from pathlib import Path

import pytest

from tests.runwire.conftest import document, printed, runwire


def test_a_schedule_is_added_listed_and_removed(up: Path) -> None:
    """For people and for programs."""
    options = ("--cron", "30 2 * * *", "--time-zone", "Europe/Berlin", "--name", "nightly")
    added = printed("schedule", "add", "What is 6*7?", *options, data=up)
    lines = dict(line.split(maxsplit=1) for line in added.splitlines())
    assert (lines["name"], lines["times"]) == ("nightly", "30 2 * * * Europe/Berlin")
    assert added.count("next") == 3
    schedule = lines["schedule"]
    listed = document("schedule", "ls", data=up)
    (shown,) = [each for each in listed if each["schedule_id"] == schedule]
    assert document("schedule", "show", schedule, data=up)["run"] == shown["run"]
    assert f"{schedule}  {shown['next'][0]}" in runwire("schedule", "ls", data=up).stdout
    assert runwire("schedule", "remove", schedule, data=up).returncode == 0
    gone = runwire("schedule", "show", schedule, data=up)
    assert (gone.returncode, "no such run, session, task, group, schedule" in gone.stderr) == (6, True)


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
