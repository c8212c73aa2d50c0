"""The recording of the README is drawn from what a terminal was given."""

from xml.etree import ElementTree as ET

from benchmarks.recording import drawn

SVG = "{http://www.w3.org/2000/svg}"


def test_each_piece_appears_in_its_place_when_it_was_written() -> None:
    """Styles and the rest of a line come later too; a long line is wrapped, a pause is cut, nothing is markup."""
    written = [(0.0, "$ x\n"), (9.0, "\x1b[1;36ma & b\x1b[0m plain"), (9.5, " <more>\n" + "y" * 105)]
    texts = list(ET.fromstring(drawn(written)).iter(f"{SVG}text"))  # noqa: S314, made here
    assert [text.text for text in texts] == ["$ x", "a & b", " plain", " <more>", "y" * 104, "y"]
    assert [text[0].attrib["dur"] for text in texts] == ["0.01s", "1.00s", "1.00s", "1.50s", "1.50s", "1.50s"]
    rows = [float(text.attrib["y"]) for text in texts]
    assert rows[0] < rows[1] == rows[2] == rows[3] < rows[4] < rows[5]
    assert texts[1].attrib["font-weight"] == "bold"
    assert float(texts[2].attrib["x"]) > float(texts[1].attrib["x"])
