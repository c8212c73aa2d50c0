"""What MkDocs does not do by itself: links out of docs/ become text, and llms.txt lists the pages for programs."""

import re
from pathlib import Path
from typing import Any

_LINK = re.compile(r"\[((?:[^\[\]`]|`[^`]*`)+)\]\((?!https?:)([^)#\s]+)(?:#[\w-]+)?\)")
_PAGES: dict[str, tuple[str, str]] = {}
"""Address of each page -> its title and its first sentence."""


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Keep links between pages; name a file of the checkout in the place of a link to it."""
    docs = Path(config["docs_dir"]).resolve()
    title = re.search(r"^# (.+)$", markdown, re.MULTILINE)
    prose = re.sub(r"^```.*?^```$", "", markdown, flags=re.DOTALL | re.MULTILINE)
    text = next((each for each in re.split(r"\n\n+", prose) if each.strip() and each[0] not in "#|-"), "")
    first = re.split(r"(?<=[.!?]) ", " ".join(_LINK.sub(r"\1", text).split()))[0].rstrip(":")
    _PAGES[page.url] = (title[1] if title else page.url, first)

    def kept(link: re.Match[str]) -> str:
        to = (docs / page.file.src_uri).parent.joinpath(link[2]).resolve()
        if to.is_relative_to(docs) and to.suffix:
            return link[0]
        name = to.relative_to(docs.parent).as_posix()
        return link[1] if name in link[1] or link[1].strip("`") in name else f"{link[1]} (`{name}`)"

    return _LINK.sub(kept, markdown)


def on_post_build(*, config: Any, **_: Any) -> None:
    """Write llms.txt (llmstxt.org): a title, a sentence, and the pages."""
    lines = [f"- [{title}]({url or './'}): {first}" for url, (title, first) in _PAGES.items()]
    head = [f"# {config['site_name']}", "", f"> {config['site_description']}", "", "## Docs", ""]
    Path(config["site_dir"], "llms.txt").write_text("\n".join([*head, *lines, ""]), encoding="utf-8")
