"""What every message has in common."""

import pytest
from pydantic.errors import PydanticUndefinedAnnotation

from contracts.wire.base import Message


def test_a_message_is_built_with_the_names_of_its_module_alone() -> None:
    """The caller's are not looked at: Python 3.13.0 may die of it."""

    class Told(Message):
        what: "Mine"  # type: ignore[valid-type]

    Mine = str  # noqa: N806
    with pytest.raises(PydanticUndefinedAnnotation):
        Told.model_rebuild()
