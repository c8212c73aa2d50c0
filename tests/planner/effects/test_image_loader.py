"""Images are loaded for a call of the model, and kept for a while."""

from contracts.wire.names import new_id
from services.messaging.connection import Bus
from services.planner.conversation import encoding
from services.planner.conversation.encoding import Messages
from services.planner.effects.image_loader import REMOVED_TEXT, ImageLoader
from tests.planner.conftest import Put
from tests.planner.shown_images import png
from tests.support.stores import Store
from tests.support.waiting import wait_until


async def test_images_leave_the_cache(store: Store, put: Put, bus: Bus) -> None:
    """When they have not been shown for a while, when they are gone, and when there are too many."""
    ref = await put(png(5))
    part = encoding.image_part(ref)
    loader = ImageLoader(bus, cached_s=0.2)
    await loader.filled("default", new_id(), None, Messages.of([{"role": "user", "content": [part]}]))
    assert loader._size > 0
    await wait_until(lambda: not loader._known and not loader._size, what="the image has left the cache")
    loader = ImageLoader(bus)
    await loader.filled("default", new_id(), None, Messages.of([{"role": "user", "content": [part, part]}]))
    assert len(loader._known) == 1
    await store.client.delete("default", ref.artifact_id)
    _, warnings = await loader.filled("default", new_id(), None, Messages.of([{"role": "user", "content": [part]}]))
    assert (len(warnings), loader._known, loader._size) == (1, {}, 0)


async def test_an_image_that_a_person_removed_is_not_shown(put: Put, bus: Bus) -> None:
    """The model reads that there was one."""
    ref = await put(png(5))
    message = {"role": "user", "content": [encoding.image_part(ref)]}
    loader = ImageLoader(bus)
    filled, warnings = await loader.filled("default", new_id(), None, Messages.of([message]), {ref.artifact_id})
    assert (REMOVED_TEXT in str(filled.pieces), warnings, loader._size) == (True, [], 0)
