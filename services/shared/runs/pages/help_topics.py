"""The help registry: Markdown files, each a topic, with TOML front matter between lines of `+++`.

`title` and `summary`; `roles` and `pages` that the topic is for (none: all), and `order` among the topics.
"""

import tomllib
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

BUILT_IN = Path(__file__).parent / "help"
_MARK = "+++\n"


class Topic(BaseModel):
    """One file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str = Field(min_length=1)
    summary: str = ""
    roles: tuple[str, ...] = ()
    pages: tuple[str, ...] = ()
    order: int = 0
    text: str


def read_topics(folder: Path) -> list[Topic]:
    """Read all topics of a folder, by `order` and file name. Raises OSError, and ValueError that names the file."""
    found = []
    for file in sorted(each for each in folder.iterdir() if each.suffix == ".md"):
        before, *parts = file.read_text(encoding="utf-8").split(_MARK, 2)
        if before or len(parts) != 2:  # noqa: PLR2004, front matter and text
            raise ValueError(f"{file}: does not begin with front matter between two lines of +++")
        try:
            found.append(Topic.model_validate({**tomllib.loads(parts[0]), "text": parts[1].strip()}))
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error
    return sorted(found, key=lambda topic: topic.order)


def help_text(topics: Iterable[Topic], page: str, role: str) -> str:
    """Return the contents list of a role's topics, then the texts of those that are for this page."""
    mine = [topic for topic in topics if not topic.roles or role in topic.roles]
    contents = [f"- {topic.title}" + (f": {topic.summary}" if topic.summary else "") for topic in mine]
    texts = [f"{topic.title}\n{topic.text}" for topic in mine if not topic.pages or page in topic.pages]
    return "\n\n".join(filter(None, ["\n".join(["Topics:", *contents]) if contents else "", *texts]))
