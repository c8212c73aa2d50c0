"""`/`: what a browser shows at the address of the gateway itself."""

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse

_TEXT = """This is a Runwire gateway. It speaks HTTP and JSON; /openapi.json describes it.

Ask something:

  runwire run "What is 17*23?"
  curl -s <this address>/chat -H 'Content-Type: application/json' -d '{"query": "What is 17*23?"}'
"""

router = APIRouter()


@router.get("/", include_in_schema=False)
async def welcome() -> PlainTextResponse:
    """Return a short description of the gateway."""
    return PlainTextResponse(_TEXT)
