"""Templates become values."""

from typing import Any

import pytest

from runwire.plans import ArgumentsTooLarge, MissingOutputField, resolve

OUTPUT: dict[str, Any] = {
    "id": "abc-123",
    "count": 3,
    "ok": False,
    "nothing": None,
    "list": [{"url": "u0"}, {"url": "u1"}],
    "0": "zero",
    "text": "$0.output.id",
    "a.b": 1,
}


@pytest.mark.parametrize(
    ("template", "field"),
    [
        ("$0.output.gone", "gone"),
        ("$0.output.gone.x.y", "gone"),
        ("$0.output.list.2.url", "list.2"),
        ("$0.output.list.x", "list.x"),
        ("$0.output.list." + "9" * 5000, "list." + "9" * 5000),
        ("$0.output.id.0", "id.0"),
        ("$0.output.a.b", "a"),
        ("$7.output.x.y", "x"),
        ("$" + "9" * 5000 + ".output.x", "x"),
    ],
)
def test_what_is_missing(template: str, field: str) -> None:
    """The error names the place up to the first segment that is not there."""
    with pytest.raises(MissingOutputField) as caught:
        resolve({"a": [{"b": template}]}, [OUTPUT, "text"])
    assert caught.value.field == field
    assert (caught.value.template, caught.value.argument) == (template, "a[0].b")
    assert len(str(caught.value)) < 1200


def test_a_reference_takes_the_place_of_a_value() -> None:
    """It is asked at every value on the way, the whole output first and the end of the path last."""
    asked: list[tuple[int, tuple[str, ...], tuple[str, ...]]] = []

    def reference(index: int, path: tuple[str, ...], value: Any, rest: tuple[str, ...]) -> Any:
        asked.append((index, path, rest))
        return {"stored": rest} if value == "<stored>" else None

    outputs = [{"a": {"b": "<stored>", "c": 1}}]
    assert resolve({"x": "$0.output.a.c"}, outputs, reference) == {"x": 1}
    assert asked == [(0, (), ("a", "c")), (0, ("a",), ("c",)), (0, ("a", "c"), ())]
    assert resolve({"x": "$0.output.a.b.d.e"}, outputs, reference) == {"x": {"stored": ("d", "e")}}
    assert resolve({"x": "$0.output.a.b"}, outputs, reference) == {"x": {"stored": ()}}
    with pytest.raises(MissingOutputField):
        resolve({"x": "$0.output.a.d"}, outputs, reference)


def test_what_is_inserted_is_bounded() -> None:
    """A large value that is inserted often is measured once and not built; a small one may come often."""
    large = "x" * 30_000
    arguments = {str(number): "$0.output.large" for number in range(3_000)}
    with pytest.raises(ArgumentsTooLarge) as caught:
        resolve(arguments, [{"large": large}], max_bytes=512 << 10)
    assert caught.value.limit == 512 << 10
    assert len(resolve(arguments, [{"large": 1}], max_bytes=3_000)) == 3_000
    with pytest.raises(ArgumentsTooLarge):
        resolve(arguments, [{"large": 1}], max_bytes=2_999)
    assert resolve({"a": "ä" * 100}, [], max_bytes=1) == {"a": "ä" * 100}
    assert resolve({"a": "$0.output.x"}, [{"x": "ä"}], max_bytes=4) == {"a": "ä"}
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ArgumentsTooLarge):
        resolve({"a": "$0.output.x"}, [{"x": deep}], max_bytes=1 << 20)
    assert resolve({"a": "$0.output.x"}, [{"x": deep}])["a"] is deep
