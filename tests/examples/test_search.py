"""The search: sections ranked by BM25, as sources."""

from pathlib import Path

import pytest

from examples.demo.search import (
    SNIPPET,
    Passage,
    index_of,
    load,
    ranked,
    search,
    search_documents,
    sections_of,
    snippet_of,
    terms_of,
)
from runwire import ToolError
from runwire.testing import RecordingContext
from services.shared.redaction.sources import extract_sources

DATA = Path(__file__).parents[2] / "examples" / "demo" / "data"


def test_a_document_is_cut_at_its_headings() -> None:
    """Titles and fragments name the place; a heading in a code block is none."""
    text = "# Guide\n\nIntro.\n\n## First part\nOne\ntwo.\n```\n# not a heading\n```\n## Empty\n\n# Other ##\nEnd."
    assert [(section.title, section.place, section.text) for section in sections_of("a/guide.md", text)] == [
        ("Guide", "a/guide.md", "Intro."),
        ("Guide: First part", "a/guide.md#first-part", "One two. ``` # not a heading ```"),
        ("Other", "a/guide.md", "End."),
    ]
    assert [section.title for section in sections_of("my-notes.txt", "No heading.")] == ["My notes"]
    assert list(sections_of("empty.md", "\n# Only a title\n")) == []


def test_words_are_compared_without_their_endings() -> None:
    """And without the words that every sentence has."""
    assert terms_of("What are the queues?") == terms_of("queue")
    assert terms_of("Retrying retries retry") == ["retr", "retr", "retr"]
    assert terms_of("planning planned plans; falling falls") == ["plan", "plan", "plan", "fall", "fall"]


def test_rare_words_and_headings_count_more() -> None:
    """The order is the ranking's, equals are in the order of their places."""
    documents = {
        "a.md": "# Disks\nThe server writes to a disk.",
        "b.md": "# Memory\nThe server keeps its cache in memory, not on a disk.",
        "c.md": "# Network\nThe server listens.",
        "d.md": "# Network\nThe server listens.",
    }
    index = index_of([section for path, text in documents.items() for section in sections_of(path, text)])
    assert [section.place for _, section in ranked(index, "disk")] == ["a.md", "b.md"]
    assert ranked(index, "server memory")[0][1].place == "b.md"
    assert [section.place for _, section in ranked(index, "listening")] == ["c.md", "d.md"]
    assert ranked(index, "the and of") == []


def test_a_snippet_is_whole_sentences_around_the_match() -> None:
    """At most 300 characters; a longer sentence is cut at a word."""
    text = "One thing. " * 40 + "Here are zebras and lions. More follows. " + "Another thing. " * 40
    snippet = snippet_of(text, "lion zebra")
    assert "Here are zebras and lions." in snippet
    assert len(snippet) <= SNIPPET
    cut = snippet_of("word " * 200, "word")
    assert len(cut) <= SNIPPET
    assert cut.endswith("word…")


@pytest.mark.parametrize(
    ("question", "place"),
    [
        ("How long are finished runs kept?", "docs/retention.md#finished-runs"),
        ("What happens when a queue is full?", "docs/queues.md#full-queues"),
        ("erase the personal data of a user", "docs/retention.md#personal-data"),
        ("What does status 404 mean for another tenant?", "docs/tenants.md#what-another-tenant-gets"),
        ("rolling restart of message servers in a cluster", "docs/upgrades.md#message-servers"),
        ("Last-Event-ID", "docs/streaming.md#reconnecting-over-http"),
    ],
)
def test_questions_about_the_documents(question: str, place: str) -> None:
    """The best passage is the one that a reader would open."""
    result = search(question, load("docs", DATA))
    assert result.passages[0].url == place
    assert result.passages[0].relevance == 1
    assert [p.relevance for p in result.passages] == sorted((p.relevance for p in result.passages), reverse=True)
    assert (DATA / place.partition("#")[0]).is_file()


async def test_passages_are_sources() -> None:
    """The annotations of the output schema make them citations."""
    result = await search_documents.run({"query": "retention of runs", "limit": 2}, RecordingContext())
    schema = search_documents.spec.output_schema
    assert schema is not None
    assert schema["$defs"][Passage.__name__]["produces_sources"] is True
    value = search("retention of runs", load("docs", DATA), 2)
    sources = extract_sources(value.model_dump(), schema)
    assert [(s.title, s.url, s.snippet, s.relevance_score) for s in sources] == [
        (p.title, p.url, p.snippet, p.relevance) for p in value.passages
    ]
    assert result == value.model_dump_json().encode()


async def test_nothing_found_is_said() -> None:
    """It is an answer, no failure."""
    result = await search_documents(search_documents.check({"query": "zeppelin"})["args"])
    assert result.passages == []
    assert result.answer.startswith("Nothing about 'zeppelin'")


@pytest.mark.parametrize("folder", ["..", "/etc", "docs/../..", "no-such-folder", "a\0b", "x" * 5_000, "out"])
def test_documents_come_from_the_data_folder_only(tmp_path: Path, folder: str) -> None:
    """Links do not lead out either."""
    data = tmp_path / "data"
    data.mkdir()
    (tmp_path / "secret.md").write_text("# Secret")
    (data / "out").symlink_to(tmp_path)
    (data / "link.md").symlink_to(tmp_path / "secret.md")
    with pytest.raises(ToolError, match="there are no documents"):
        load(folder, data)


def test_a_changed_document_is_read_again(tmp_path: Path) -> None:
    """No restart is needed."""
    document = tmp_path / "note.md"
    document.write_text("# Note\nAbout apples.")
    assert search("apples", load(".", tmp_path)).passages
    document.write_text("# Note\nAbout oranges.")
    assert not search("apples", load(".", tmp_path)).passages
    assert search("oranges", load(".", tmp_path)).passages
