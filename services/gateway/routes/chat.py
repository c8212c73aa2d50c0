"""`POST /chat`: one question, answered once its run has ended. For programs of an earlier interface."""

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict

from contracts.payload import FinalPayload
from contracts.runs import RunInput
from services.gateway.artifacts.inlining import Form, Inliner
from services.gateway.compression import json_response
from services.gateway.open_streams import OpenStreams
from services.gateway.stored_runs.reader import RunReader
from services.gateway.submissions.accept import Submissions

from .common import Tenant, body_of, new_router


class ChatInput(RunInput):
    """The body of `POST /chat`, a compatibility surface: that of a run, and unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class ChatAnswer(BaseModel):
    """The answer of `POST /chat`, however the run ended."""

    run_id: str
    payload: FinalPayload


class ChatRoutes:
    """The route of chats."""

    def __init__(self, submissions: Submissions, runs: RunReader, inliner: Inliner, streams: OpenStreams) -> None:
        self._submissions = submissions
        self._runs = runs
        self._inliner = inliner
        self._streams = streams

    def router(self) -> APIRouter:
        """Return the route."""
        router = new_router("compatibility")
        router.post("/chat", response_model=ChatAnswer, openapi_extra=body_of(ChatInput, keyed=True))(self.chat)
        return router

    async def chat(self, request: Request, tenant: Tenant, artifacts: Form = "values") -> Response:
        """Start a run and wait for its end, however it ends. A client that disconnects does not cancel it."""
        with self._streams.counted(tenant):
            accepted = await self._submissions.accept(request, tenant, ChatInput, is_followed=True)
            result = self._runs.wait_for_result(tenant, accepted.run, accepted.follower)
            detail = "The gateway is stopping; the run goes on."
            payload = await self._streams.while_connected(request.receive, result, detail, run_id=accepted.run)
        if artifacts == "values":
            payload = await self._inliner.payload(tenant, payload)
        answer = ChatAnswer(run_id=accepted.run, payload=payload)
        return await json_response(answer.model_dump_json().encode(), request.headers)
