"""Every vector of every topic that has an adapter. Vectors are the contract in examples; conftest.py collects them."""

import inspect
from types import ModuleType
from typing import Any


async def test_vector(adapter: ModuleType, vector: dict[str, Any]) -> None:
    """The product does what the vector expects."""
    whole_run = vector["input"].get("runtime") is True and hasattr(adapter, "check_runtime")
    checked = (adapter.check_runtime if whole_run else adapter.check)(vector)
    if inspect.isawaitable(checked):
        await checked
