"""What texts of the checkout may name: no machine, registry or key, and only documents and sections that exist."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.checkout import ROOT, files

pytestmark = pytest.mark.timeout(300)  # Every file is read, on a machine that may do other work.

# The classes in brackets keep this file from finding itself.
FORBIDDEN = {
    "a path of somebody's machine": re.compile(
        r"(?<![\w.-])/(?:[w]ork|[r]oot|[U]sers|[h]ome(?!/(?:runwire|nonroot)\b)|tmp/[r]w)/[\w.]"
    ),
    "the host of a package registry": re.compile(
        r"pypi[.]org/simple|files[.]pythonhosted|registry[.]npmjs|proxy[.]golang"
    ),
    "an index for an installer": re.compile(
        r"--(?:extra-)?[i]ndex-url|--[f]ind-links|[\"']?resolved[\"']?: *[\"']http|registry *= *[\"']?http"
    ),
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE [K]EY"),
}


def test_no_file_names_a_machine_a_registry_or_a_key() -> None:
    """The checkout works wherever it lies, with whatever registry its reader uses."""
    found = []
    for path in files():
        text = path.read_bytes()
        if b"\0" in text:
            continue
        for what, pattern in FORBIDDEN.items():
            found += [
                f"{path.relative_to(ROOT)}: {what}: {hit[0]!r}"
                for hit in pattern.finditer(text.decode(errors="replace"))
            ]
    assert not found


@pytest.mark.parametrize(
    "parts",
    [
        ("a file:///ro", "ot/.cache"),
        ("COPY /wo", "rk/main ."),
        ("https://pypi.org/sim", "ple/"),
        ('"resolv', 'ed": "https://'),
    ],
)
def test_what_no_file_may_name_would_be_found(parts: tuple[str, str]) -> None:
    """The patterns above are written so that they miss themselves; they must not miss the rest."""
    assert any(pattern.search("".join(parts)) for pattern in FORBIDDEN.values())


#: A pointer into a text that no reader of the checkout has: a working paper and its chapter, a finding, an issue.
ELSEWHERE = re.compile(
    r"\b(?:ACTIONS|BRIEF|DESIGN|HOUSE|PLANS|SPEC)(?:\.md\b| [0-9])"
    r"|(?<![\w/.-])(?:[.]{2}/)*(?:shared|spec|reference|handover)/[\w./-]*\w"
    r"|\b[Ff]inding #?[0-9]|\b[Ii]ssue #?[0-9]|§ ?[0-9]|\bF[0-9]{2}\b"
)
#: A file of docs, and a section of it.
POINTER = re.compile(r"\bdocs/((?:decisions/)?[\w-]+\.md)(?:#([\w-]+))?")
DECISION = re.compile(r"\bdocs/decisions/([0-9]{4})(?![\w-])")
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)?(?:#([\w-]+))?\)")


def texts() -> Iterator[tuple[Path, str]]:
    """Path below the root and content of every text of the checkout that somebody wrote by hand."""
    for path in files():
        below, data = path.relative_to(ROOT), path.read_bytes()
        if (
            b"\0" not in data
            and path.suffix not in {".lock", ".json", ".sum", ".csv"}
            and below != Path("tests/test_texts.py")
        ):
            yield below, data.decode(errors="replace")


def test_no_text_points_out_of_the_checkout() -> None:
    """A reader of a comment has the checkout and nothing else: it gives its reason, or names a section of docs."""
    found = [f"{path}: {hit[0]!r}" for path, text in texts() for hit in ELSEWHERE.finditer(text)]
    assert not found


def test_the_sdk_is_installed_by_path() -> None:
    """There is no release, and the name alone would install whatever somebody has published under it."""
    bare = re.compile(r"pip install (?:-\S+ )*[\"']?[r]unwire\b(?!-)")
    assert bare.search("pip install 'runwire" + "[client]'")
    assert not [f"{path}: {hit[0]!r}" for path, text in texts() for hit in bare.finditer(text)]


def test_what_is_pointed_to_is_there() -> None:
    """Every file of docs that a text names exists, and so does its section."""
    lost = []
    for path, text in texts():
        if path.parts[:2] == ("tests", "examples"):  # The tool that searches has documents of its own.
            continue
        lost += [
            f"{path}: {hit}"
            for hit in DECISION.findall(text)
            if not list((ROOT / "docs" / "decisions").glob(f"{hit}-*.md"))
        ]
        named = [(Path("docs", name), section) for name, section in POINTER.findall(text)]
        if path.suffix == ".md":
            named += [(path.parent / name if name else path, section) for name, section in LINK.findall(text)]
        lost += [
            f"{path}: {name}#{section}"
            for name, section in named
            if not (ROOT / name).exists() or section not in {"", *sections(ROOT / name)}
        ]
    assert not lost


def test_the_docs_are_short() -> None:
    """What a page of docs says is said once; tables that the code writes (docs/rules) and decisions do not count."""
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in (ROOT / "docs").glob("*.md")) <= 25_000


def test_every_decision_is_in_the_index() -> None:
    """With its number and a link."""
    folder = ROOT / "docs" / "decisions"
    listed = re.findall(
        r"^\| \[(\d{4})\]\((\1-[\w-]+\.md)\)", (folder / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(name for _, name in listed) == sorted(path.name for path in folder.glob("[0-9]*.md"))


@cache
def sections(path: Path) -> frozenset[str]:
    """The anchors of a file's headings, as GitHub makes them."""
    if path.suffix != ".md":
        return frozenset()
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return frozenset(re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings)
