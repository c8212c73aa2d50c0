"""The tool that sends reports: one file for each call, and no call without an approval."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from examples.demo.report import Report, send_report
from runwire.testing import RecordingContext


async def test_a_report_is_written_once_for_each_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repeated call writes the same file."""
    monkeypatch.setenv("RUNWIRE_OUTBOX", str(tmp_path / "outbox"))
    context = RecordingContext()
    for _ in range(2):
        sent = await send_report(Report(to="ann@example.org", text="All is well."), context)
    (file,) = (tmp_path / "outbox").iterdir()
    assert (sent["answer"], sent["file"]) == ("The report was sent to ann@example.org.", str(file))
    assert file.read_text() == "To: ann@example.org\n\nAll is well.\n"


def test_a_person_approves_each_call() -> None:
    """Its specification says so."""
    assert send_report.spec.requires_approval


@pytest.mark.parametrize("to", ["ann", "a b@example.org", "@", "ann@example.org\nBcc: bob@example.org"])
def test_what_is_no_address_is_refused(to: str) -> None:
    """Neither words nor further lines of a head."""
    with pytest.raises(ValidationError):
        Report(to=to, text="x")
