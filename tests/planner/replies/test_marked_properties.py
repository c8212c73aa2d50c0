"""What holds for every marked response: the split does not matter, blocks are never shown, nothing waits without need.

The scanner is compared with the grammar written once more, as a regular expression over a text that has come whole.
"""

import random
import re
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.planner.replies.marked.blocks import Page, Response
from services.planner.replies.marked.openers import BLANKS
from services.planner.replies.marked.scanner import MarkerScanner
from services.shared.runs.pages import registry
from services.shared.runs.pages.page_types import BUILT_IN_PAYLOADS, SUGGESTIONS
from tests.support import samples

VIEW = Page(registry.TABLE_VIEW.payloads)
MARKERS = (*SUGGESTIONS, *(each.marker for each in BUILT_IN_PAYLOADS))
PIECES = [
    *MARKERS,
    *(name[:cut] for name in MARKERS for cut in (1, 4, len(name) - 1)),
    *(f"{left}{name}{right}" for name in MARKERS[:3] for left, right in (("**", "**:"), ("`", "`:"), ("__", ":__"))),
    *(
        '[{"label": "A", "value": "a"}]',
        '{"operations": [{"action": "delete", "row_id": 1}]}',
        "[]",
        "{}",
        "[1",
        "null",
    ),
    *("*", "**", "***", "_", "__", "`", "```", "```json\n", "```\n", "   ```", "- ", "# ", "1. ", "> ", "12", "#"),
    *(":", "\uff1a", ": ", " ", "\n", "\r\n", "\t", "\u00a0", *"{}[]\"\\'aSD9\u00e9"),
]
texts = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)

END = " \u00b6"
"""Ends what could still become a marker."""
BOLD = r"(?:\*{1,3}|__)"
BLANK = f"[{BLANKS}]*"
FENCE = rf"```[A-Za-z0-9_+-]*[ \t\r]*\n{BLANK}"
START = re.compile(
    rf"(?P<lead>(?:\#{{1,6}}|[-*>]|[0-9]{{1,9}}\.)[ ])?(?P<fence>{FENCE})?(?P<bold>{BOLD})?(?P<tick>`)?"
    rf"(?:{'|'.join(MARKERS)})(?(tick)(?:(?P<within>[:\uff1a])?`))(?P<closing>{BOLD})?"
    rf"(?:(?(within)|{BLANK}[:\uff1a]){BLANK}(?P<later>{BOLD})?{BLANK}|(?P<bare>[ \t\r]*\n[ \t\r]*))"
    rf"(?P<inner>{FENCE})?(?=\{{{BLANK}[\"'}}]|\[{BLANK}(?:[{{\[\"'\]0-9-]|(?:true|false|null)(?![A-Za-z0-9_])))"
)
ITEM = re.compile(r"(?m)^([\t\r ]*(?:[-*+]|[0-9]{1,9}[.)])[\t ])")


def message_of(text: str) -> str:
    """What is shown of a text in the end, found without reading it in order; blocks may not be cut at its end."""
    kept, here, before = [], 0, ""
    while here < len(text):
        found = START.match(text, here)
        if found is None or not begins(found, before):
            kept.append(text[here])
            before += text[here]
            here += 1
            continue
        here = end_of_json(text, found.end())
        sign = "" if found["closing"] or found["later"] else (found["bold"] or "")[:1]
        bold = {"": "", "*": r"\*{0,3}", "_": "(?:__)?"}[sign]
        fence = f"(?:{BLANK}```)?" if found["fence"] or found["inner"] else ""
        closed = re.compile(bold + fence).match(text, here)
        assert closed is not None
        here, before = closed.end(), before + "]"
    return "".join(kept).strip(BLANKS)


def begins(found: re.Match[str], before: str) -> bool:
    """Whether what stands before a match lets it be a block."""
    line = before.rpartition("\n")[2]
    is_blank = not line.strip(BLANKS)
    items = ITEM.findall(before)
    if found["lead"] and (line or found["fence"]):
        return False
    if found["fence"] and not (is_blank and len(line) <= max(3, len(items[-1]) if items else 0)):
        return False
    is_decorated = found["tick"] or found["lead"] or (found["bold"] and found["closing"])
    if found["bare"] and not (is_decorated and (is_blank or found["fence"])):
        return False
    if found["lead"] or found["fence"]:
        return True
    if before.rstrip("*_").endswith("`"):
        return False
    return bool(found["bold"] or found["tick"]) or not re.search(r"[A-Za-z0-9_]\Z", before)


def end_of_json(text: str, start: int) -> int:
    """Where the brackets are balanced, or the end."""
    depth, in_string, here = 0, False, start
    while here < len(text):
        here += 1
        sign = text[here - 1]
        if in_string:
            here += sign == "\\"
            in_string = sign != '"'
        elif sign == '"':
            in_string = True
        elif sign in (text[start], {"{": "}", "[": "]"}[text[start]]):
            depth += 1 if sign == text[start] else -1
            if not depth:
                return here
    return len(text)


def read(*chunks: str) -> tuple[list[str], Response]:
    """What is shown after each chunk and at the end, and the response."""
    scanner = MarkerScanner(VIEW)
    deltas = [scanner.feed(chunk) for chunk in chunks]
    last, response = scanner.finish()
    return [*deltas, last], response


def cut_anywhere(text: str, rng: random.Random) -> list[str]:
    cuts = sorted(rng.randint(0, len(text)) for _ in range(rng.randint(0, 9)))
    return [text[start:end] for start, end in pairwise([0, *cuts, len(text)])]


@settings(derandomize=True)
@given(text=texts, seed=st.integers(0, 1 << 16))
def test_the_split_does_not_matter(text: str, seed: int) -> None:
    """Any chunks show what the whole text shows; a scanner that was fed some parts again goes on as the first."""
    rng = random.Random(seed)
    deltas, response = read(*cut_anywhere(text, rng))
    assert response == read(text)[1]
    assert "".join(deltas) == response.message, "nothing is taken back"
    fed_again, first = MarkerScanner(VIEW), MarkerScanner(VIEW)
    cut = rng.randint(0, len(text))
    assert fed_again.feed(text[:cut]) == "".join(map(first.feed, text[:cut]))
    assert fed_again.feed(text[cut:]) == "".join(map(first.feed, text[cut:]))
    assert fed_again.finish() == first.finish()


@settings(derandomize=True)
@given(text=texts)
def test_no_block_is_shown(text: str) -> None:
    """The message is the text without what the grammar calls a block."""
    assert read(*text, *END)[1].message == message_of(text + END)


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", samples.seeds(100))
def test_many_texts(seed: int) -> None:
    """The same of longer texts: however they are cut, they show what the grammar leaves of them."""
    rng = random.Random(seed)
    for _ in range(1_000):
        text = "".join(rng.choice(PIECES) for _ in range(rng.randint(0, 20))) + END
        deltas, response = read(*cut_anywhere(text, rng))
        assert "".join(deltas) == response.message == message_of(text), text
        assert response == read(text)[1], text


#: What completes the beginning of a block, whatever is there of it.
REST = [
    f"{some}{name[cut:]}{end}"
    for name in MARKERS
    for cut in range(len(name) + 1)
    for some in ("", " ", "\n", "*", "_", "`", "``", "```", ". ", "`\n", "``\n")
    for end in (": []", "`: []", ":` []", "**\n[]")
]
REST += ["\n[]", "[]", "]", "1]", "{}", "}"]
REST += [word[cut:] + "]" for word in ("true", "false", "null") for cut in (1, 2, 3, 4)]


@settings(derandomize=True)
@given(text=texts)
def test_nothing_waits_without_need(text: str) -> None:
    """What is not shown yet, but for blanks at the end, is part of a block in some longer text."""
    scanner = MarkerScanner(VIEW)
    shown = scanner.feed(text)
    if scanner.open_block is not None:
        return
    held = "".join(scanner.finish()[0]).strip(BLANKS)
    if held:
        assert any(read(text + rest)[1].message in {shown, shown.strip(BLANKS)} for rest in REST), (shown, held)


CHARACTERS = 1 << 16
BLOCK = 'SUGGESTED_VALUES: [{"label": "A", "value": "a"}]\n'
SHAPES: dict[str, Callable[[int], str]] = {
    "prose": lambda n: "Some words. " * (n // 12),
    "lines": lambda n: "- a line\n" * (n // 9),
    "stars": lambda n: "*" * n,
    "backticks": lambda n: "`" * n,
    "fences": lambda n: "```\n" * (n // 4),
    "underscores": lambda n: "_" * n,
    "every third an S": lambda n: "S, " * (n // 3),
    "blanks": lambda n: "\n " * (n // 2),
    "blanks before a colon": lambda n: "SUGGESTED_VALUES" + " " * n + ": x",
    "blanks behind a colon": lambda n: "SUGGESTED_VALUES:\n```\n" + " " * n + "x",
    "blanks behind a bracket": lambda n: "SUGGESTED_VALUES: [" + " " * n + "x",
    "a language": lambda n: "```" + "a" * n + "\nSUGGESTED_VALUES: x",
    "blanks behind a block": lambda n: "```\n" + BLOCK + "\n" * n + "``x",
    "blocks": lambda n: BLOCK * (n // len(BLOCK)),
    "a string in a block": lambda n: 'DATA_PROPOSAL: {"a": "' + "word " * (n // 5) + '"} x',
    "escapes in a block": lambda n: 'DATA_PROPOSAL: {"a": "' + "\\n" * (n // 2) + '"} x',
    "brackets": lambda n: "SUGGESTED_VALUES: " + "[" * n,
}


def work(text: str, size: int) -> int:
    """Characters examined when `text` comes in chunks of `size`."""
    scanner = MarkerScanner(VIEW)
    for start in range(0, len(text), size):
        scanner.feed(text[start : start + size])
    scanner.finish()
    return scanner.characters_examined


@pytest.mark.sample(20)
@pytest.mark.parametrize("size", [3, 512, CHARACTERS])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_work_grows_with_the_text(shape: str, size: int) -> None:
    """Eight times the text, about eight times the characters examined, whatever the chunks are.

    What waits is examined again now and then: three to five times, as the last time falls.
    """
    part, whole = (work(SHAPES[shape](characters), size) for characters in (CHARACTERS // 8, CHARACTERS))
    assert part < whole < 16 * part
