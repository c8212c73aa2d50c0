"""An answer as Markdown, block by block."""

from io import StringIO

from rich.console import Console

from runwire.cli.screen import GrowingAnswer, split

ANSWER = "# Sales\n\nEast **grew** most, [see](https://example.org/a):\n\n```py\na = 1\n\nb = 2\n```\n\n- one\n- two"


def shown(pieces: list[str]) -> str:
    """What stands on the screen afterwards."""
    console = Console(file=StringIO(), width=40, force_terminal=False, emoji=False)
    answer = GrowingAnswer(console)
    for piece in pieces:
        answer.add(piece)
    answer.end()
    written = console.file
    assert isinstance(written, StringIO)
    return "\n".join(line.strip() for line in written.getvalue().splitlines() if line.strip())


def test_however_it_is_cut_it_is_shown_once() -> None:
    """No marks, the address of a link, words wrapped, and nothing of a terminal's."""
    whole = shown([ANSWER])
    assert shown(list(ANSWER)) == whole
    for text in ("Sales", "East grew most", "https://example.org/a", "• one"):
        assert text in whole
    assert "**" not in whole
    assert shown(["6*7 = 42, `2*2` and 2*3 = 6"]) == "6*7 = 42, 2*2 and 2*3 = 6"
    long = shown(["word " * 30 + "\x1b[2J"])
    assert max(map(len, long.splitlines())) <= 40
    assert "\x1b" not in long
    assert not any(line.startswith("ord") for line in long.splitlines())


def test_an_empty_line_in_a_code_block_ends_no_block() -> None:
    """Each prefix is split where a block was whole."""
    assert split("a\n\n```\nb\n\nc") == ("a\n\n", "```\nb\n\nc")
    assert split("a\nb") == ("", "a\nb")
    assert split("```\nb\n\n```\n\nc") == ("```\nb\n\n```\n\n", "c")
