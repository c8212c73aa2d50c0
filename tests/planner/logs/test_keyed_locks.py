"""A lock for each key, for as long as somebody uses it."""

import asyncio

from services.planner.logs.keyed_locks import KeyedLocks


async def test_one_key_has_one_lock() -> None:
    """Of another key there is another one, and none is kept."""
    locks, order = KeyedLocks(), []

    async def work(key: str, name: str) -> None:
        async with locks.of(key) as lock, lock:
            order.append(f"{name} begins")
            await asyncio.sleep(0)
            order.append(f"{name} ends")

    await asyncio.gather(work("a", "first"), work("a", "second"), work("b", "other"))
    assert order.index("first ends") < order.index("second begins")
    assert order.index("other begins") < order.index("first ends")
    assert not locks._locks
