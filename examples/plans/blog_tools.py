"""Two tools for a plan: `research_blog` makes an artifact with an id of its own, and `create_blog_post` takes that id.

Nothing is fetched: what is found follows from the topic. It is kept as a file in BLOG_FOLDER, else `runwire-blogs` in
the system's folder for temporary files, under its id and the session, or the run without one.
"""

import hashlib
import json
import os
import tempfile
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from runwire import ToolContext, ToolError, ToolResponse, tool

ASPECTS = {
    "What is new": "Most of what is published about {topic} repeats a few findings. Tools became cheaper, and teams "
    "that tried them early now say what worked: small steps, figures before and after, and one person who decides. "
    "Big announcements were rarely followed by big changes.",
    "What it is good for": "People who work with {topic} name three uses: answering the same question for the "
    "hundredth time, finding the one paragraph that matters in a long text, and checking work before somebody else "
    "reads it. What they do not name is replacing a colleague.",
    "What to watch": "Costs grow with use and not with value, so watch both. Ask of every report on {topic} who paid "
    "for it, how many were asked, and what was left out. Whoever starts now should be able to stop again in a week.",
    "How to begin": "Take one task that is done every day and that nobody likes. Write down how long it takes, let "
    "two people try {topic} on it for a month, and write it down again. Keep the figures, whatever they say, and "
    "tell the next team what you would do differently.",
}
"""Heading -> text, of any topic."""
IS_TEXT = ConfigDict(json_schema_extra={"x-artifact-type": "text"})


class Section(BaseModel):
    """A part of the research."""

    heading: str
    text: str


class Source(BaseModel):
    """Where something was found."""

    title: str
    url: str


class Blog(BaseModel):
    """What was found about a topic."""

    model_config = IS_TEXT

    title: str
    sections: list[Section]
    sources: list[Source]


class Post(BaseModel):
    """A post that can be published."""

    model_config = IS_TEXT

    title: str
    markdown: str


class Research(BaseModel):
    """What to look for."""

    topic: str = Field(min_length=1, max_length=200, description="what the post is about")
    skill_id: str = Field(description="the skill with which the topic is researched")


class Writing(BaseModel):
    """What to write."""

    artifact_id: str = Field(description="the artifact_id of a result of research_blog")
    skill_id: str = Field(description="the skill with which the post is written")
    instructions: str = Field(description="what the post should stress")


@tool(desc="Research a topic for the blog", tags=["blog"], idempotent=True)
def research_blog(args: Research, ctx: ToolContext) -> ToolResponse[Blog]:
    """Return what was found as an artifact. The caller may name it: `blog_id` in the `tool_context` of the request."""
    found, blog_id = research(args.topic), str(ctx.context.get("blog_id") or ctx.idempotency_key)
    keep(found, blog_id, ctx)
    said = f'Found {len(found.sections)} sections and a source about "{args.topic}".'
    return ToolResponse(found, artifact_id=blog_id, skill_id=args.skill_id, content=said)


@tool(desc="Create a blog post from research", tags=["blog"], idempotent=True)
def create_blog_post(args: Writing, ctx: ToolContext) -> ToolResponse[Post]:
    """Return the post as an artifact. Without such research the model reads what to do first."""
    post = write(kept(args.artifact_id, ctx), args.instructions)
    said = f'Wrote the post "{post.title}" from {args.artifact_id}.'
    return ToolResponse(post, artifact_id=f"{args.artifact_id}-post", skill_id=args.skill_id, content=said)


def research(topic: str) -> Blog:
    """Find the same for the same topic."""
    sections = [Section(heading=heading, text=text.format(topic=topic)) for heading, text in ASPECTS.items()]
    address = f"https://example.org/{hashlib.sha256(topic.encode()).hexdigest()[:8]}"
    return Blog(title=topic, sections=sections, sources=[Source(title=f"A report on {topic}", url=address)])


def write(blog: Blog, instructions: str) -> Post:
    """Write the post in Markdown."""
    parts = [f"# {blog.title}", f"*{instructions}*"]
    parts += [f"## {section.heading}\n\n{section.text}" for section in blog.sections]
    parts += [f"- [{source.title}]({source.url})" for source in blog.sources]
    return Post(title=blog.title, markdown="\n\n".join(parts))


def keep(blog: Blog, blog_id: str, ctx: ToolContext) -> None:
    """Keep research for later calls."""
    file = place_of(blog_id, ctx)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(blog.model_dump_json(), encoding="utf-8")


def kept(blog_id: str, ctx: ToolContext) -> Blog:
    """Return the research with this id. Raises ToolError if there is none."""
    try:
        return Blog.model_validate_json(place_of(blog_id, ctx).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ToolError(f"there is no research with the id {blog_id}: research the topic first") from None


def place_of(blog_id: str, ctx: ToolContext) -> Path:
    """Return the file of some research. An id may be any text, so the name is a digest."""
    folder = Path(os.environ.get("BLOG_FOLDER") or Path(tempfile.gettempdir()) / "runwire-blogs")
    return folder / hashlib.sha256(json.dumps([ctx.tenant, ctx.context_id, blog_id]).encode()).hexdigest()
