"""What people have added to a run, as its log holds it. Pure.

Each input is in exactly one place: unread until the next request to the model, then in the history, once and in order.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from contracts.artifacts.images import ImageRef
from contracts.runs.events import InputAdded


@dataclass(slots=True)
class AddedInputs:
    """The inputs of a run, in their order."""

    ids: set[str] = field(default_factory=set)
    unread: list[InputAdded] = field(default_factory=list)
    """The model has not received them."""
    read: list[InputAdded] = field(default_factory=list)

    def add(self, added: InputAdded) -> None:
        """Take an input that was recorded."""
        self.ids.add(added.id)
        self.unread.append(added)

    def take_unread(self, held: Callable[[InputAdded], bool]) -> list[InputAdded]:
        """Return the unread inputs up to the first that a person has to admit. They are read from now on."""
        count = next((place for place, added in enumerate(self.unread) if held(added)), len(self.unread))
        taken, self.unread = self.unread[:count], self.unread[count:]
        self.read += taken
        return taken

    @property
    def images(self) -> list[ImageRef]:
        """The images that the model was shown with inputs."""
        return [image for added in self.read for image in added.images]

    def question(self, query: str) -> str:
        """Return what the model was asked: the question of the run, or what replaced it, with what was added."""
        texts = [query]
        for added in self.read:
            texts = [added.text] if added.redirect else [*texts, added.text]
        return "\n\n".join(text for text in texts if text)
