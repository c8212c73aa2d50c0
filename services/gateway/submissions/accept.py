"""Take a question in, with its images: what `POST /v1/runs` and `POST /chat` have in common.

The order: the body's form, the idempotency key (a run that is known is given back, whatever has changed since), the
model's name, whether it sees images, the images themselves, and only then the request for the run.
"""

from fastapi import Request

from contracts.images import ImageRef
from contracts.runs import RunInput
from services.gateway.event_stream import OpenStreams
from services.gateway.open_streams import while_connected
from services.gateway.submissions.images import Images
from services.gateway.submissions.models import Models
from services.gateway.submissions.request_body import Questions, idempotency_key, trace_id
from services.gateway.submissions.submit import Intake
from services.gateway.submissions.vision import Vision


class Asking:
    """Reads questions and has their runs accepted."""

    def __init__(
        self, questions: Questions, intake: Intake, models: Models, images: Images, streams: OpenStreams
    ) -> None:
        self._questions = questions
        self._intake = intake
        self._models = models
        self._vision = Vision(models)
        self._images = images
        self._streams = streams

    async def accept(self, request: Request, tenant: str, form: type[RunInput]) -> str:
        """Return the id of the run that a request asks for. Raises the problems of its parts."""
        async with self._questions.read(request, form) as asked:

            async def images(run: str) -> list[ImageRef]:
                work = self._images_of(tenant, run, asked)
                return await while_connected(
                    request, self._streams, work, "The gateway is stopping; nothing was accepted."
                )

            async def check() -> None:
                await self._models.check(asked.model)

            return await self._intake.accept(tenant, asked, idempotency_key(request), trace_id(request), images, check)

    async def _images_of(self, tenant: str, run: str, asked: RunInput) -> list[ImageRef]:
        await self._vision.check(asked.model, asked.agent, asked.vision)
        return await self._images.take(tenant, run, asked)
