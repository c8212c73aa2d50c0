"""An answer as Markdown while it arrives: whole blocks are printed, the open one is drawn anew with each piece.

What is printed has no escape sequences of a model's, and no link that hides its address.
"""

import re

from rich.console import Console
from rich.live import Live
from rich.markdown import Markdown

from runwire.cli.printing import visible

PAGE = Console(emoji=False, highlight=False)
"""Wraps words, in contrast to `printing.OUT`."""
_CODE, _PRODUCT = re.compile(r"(```.*?(?:```|\Z)|`[^`\n]*`)", re.DOTALL), re.compile(r"(?<=\d)\*(?=\d)")
_FENCE = re.compile(r"^ {0,3}(```|~~~)", re.MULTILINE)


def rendered(text: str) -> Markdown:
    """Text of a model for a terminal. A product of numbers, as 6*7, is no emphasis."""
    parts = _CODE.split(visible(text))
    parts[::2] = [_PRODUCT.sub(r"\\*", part) for part in parts[::2]]
    return Markdown("".join(parts), hyperlinks=False)


class GrowingAnswer:
    """Shows one answer in a terminal."""

    def __init__(self, console: Console = PAGE) -> None:
        self._console = console
        self._open = ""
        self._live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False)

    def add(self, text: str) -> None:
        """Show one more piece."""
        self._live.start()
        whole, self._open = split(self._open + text)
        if whole:
            self._live.update("")
            self._console.print(rendered(whole), "")
        self._live.update(rendered(self._open), refresh=True)

    def end(self) -> None:
        """Print what is open; nothing is drawn anew afterwards."""
        self._live.stop()
        if self._open.strip():
            self._console.print(rendered(self._open))
        self._open = ""


def split(text: str) -> tuple[str, str]:
    """The blocks of a text that are whole, and the rest: a block ends with an empty line outside of a code block."""
    for end in reversed([found.end() for found in re.finditer(r"\n[ \t]*\n", text)]):
        if len(_FENCE.findall(text[:end])) % 2 == 0:
            return text[:end], text[end:]
    return "", text
