"""What the services count and measure, for Prometheus: `/metrics` of every service's health port.

No label holds a tenant, run, session or user: their number has no bound. A name that a caller may choose (`named`) is a
label as long as few are known. docs/rules/metrics.md is made of this list.
"""

from functools import lru_cache
from typing import TypeVar

from prometheus_client import Counter, Gauge, Histogram

from contracts.runs.payload import Usage

M = TypeVar("M", Counter, Histogram)
MAX_NAMES = 200
"""Models, tools and codes that have a label of their own; further ones are counted together, as `other`."""
SECONDS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)

RUNS_ENDED = Counter("runwire_runs_ended", "Runs that planners have ended, by status and code", ["status", "code"])
RUN_SECONDS = Histogram(
    "runwire_run_seconds",
    "Seconds from the request of a run to its end, by status",
    ["status"],
    buckets=(*SECONDS, 3600),
)
MODEL_REQUESTS = Counter(
    "runwire_model_requests",
    "Requests to models, by model and code: `ok`, why one failed, or `abandoned`",
    ["model", "code"],
)
MODEL_SECONDS = Histogram(
    "runwire_model_request_seconds", "Seconds of a request to a model, to its end, by model", ["model"], buckets=SECONDS
)
FIRST_TOKEN_SECONDS = Histogram(
    "runwire_model_first_token_seconds",
    "Seconds from a request to the first part of its reply, by model",
    ["model"],
    buckets=SECONDS,
)
MODEL_TOKENS = Counter(
    "runwire_model_tokens",
    "Tokens as the provider counts them, or estimated, by model and kind: prompt, completion, reasoning, cached",
    ["model", "kind"],
)
REPLY_FORMS = Counter(
    "runwire_reply_forms",
    "Each form of a reply and each rule that it needed, `invalid` and `failed` ones too, by model and form",
    ["model", "form"],
)
CALLS_ENDED = Counter(
    "runwire_tool_calls", "Calls of tools that have ended, by tool and code: `ok`, or why one failed", ["tool", "code"]
)
CALL_SECONDS = Histogram(
    "runwire_tool_call_seconds", "Seconds from a call of a tool to its end, by tool", ["tool"], buckets=SECONDS
)
HTTP_REQUESTS = Counter(
    "runwire_http_requests",
    "Requests to the gateway, by method, route and status; a path that is no route is `other`",
    ["method", "route", "status"],
)
HTTP_SECONDS = Histogram(
    "runwire_http_first_byte_seconds",
    "Seconds from a request to the first byte of its answer, by route",
    ["route"],
    buckets=SECONDS,
)
FALSE_DEATHS = Counter("runwire_false_deaths", "Planners that were taken for dead and went on after a reconnect")
OPEN_STREAMS = Gauge("runwire_open_streams", "Connections that wait for runs")

_names: dict[str, set[str]] = {"model": set(), "tool": set(), "code": set()}


def named(kind: str, name: str) -> str:
    """Return the label for a `model`, `tool` or `code` of a tool."""
    known = _names[kind]
    if len(known) < MAX_NAMES:
        known.add(name)
    return name if name in known else "other"


@lru_cache(maxsize=4096)
def labelled(metric: M, *labels: object) -> M:
    """Return `metric.labels(...)`. prometheus_client checks the labels each time, which costs more than counting."""
    return metric.labels(*labels)


def count_tokens(model: str, usage: Usage) -> None:
    """Count the tokens of one request to a model."""
    for kind in ("prompt", "completion", "reasoning", "cached"):
        labelled(MODEL_TOKENS, model, kind).inc(getattr(usage, f"{kind}_tokens"))
