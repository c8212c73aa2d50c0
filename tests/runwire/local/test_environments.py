"""Which variables of the shell each process of `runwire up` gets."""

import importlib.util
import re
from pathlib import Path
from typing import get_args

import pytest
from pydantic import SecretStr

from runwire.local.configuration import is_provider_secret, of_server, of_service, of_tools
from services.artifact_store.settings import ArtifactStoreSettings
from services.gateway.settings import GatewaySettings
from services.planner.settings import PlannerSettings
from services.runtime.settings import BusSettings
from services.tool_runner.settings import ToolRunnerSettings

SERVICES: dict[str, type[BusSettings]] = {
    "artifact_store": ArtifactStoreSettings,
    "gateway": GatewaySettings,
    "planner": PlannerSettings,
    "tool_runner": ToolRunnerSettings,
}
SHELL = {
    "PATH": "/bin",
    "LC_ALL": "C",
    "PYTHONPATH": "the tools'",
    "DATABASE_URL": "a tool's own",
    "WEATHER_API_KEY": "a tool's own",
    "TAVILY_API_KEY": "a tool's own",
    "GITHUB_TOKEN": "a tool's own",
    "OPENAI_API_KEY": "a provider's",
    "AWS_SECRET_ACCESS_KEY": "a provider's",
    "AWS_REGION": "no secret",
    "RUNWIRE_LOG_LEVEL": "debug",
    "RUNWIRE_MODEL": "openai/x",
    "RUNWIRE_MODEL_API_KEY": "the planner's",
    "RUNWIRE_API_KEYS": "the gateway's",
    "RUNWIRE_API_KEY": "the command line's",
    "RUNWIRE_S3_SECRET_KEY": "the artifact store's",
    "RUNWIRE_NATS_PASSWORD": "of another server",
}
OTHERS = """
AGENTCORE_GATEWAY_TOKEN APISERPENT_API_KEY ARIZE_API_KEY AWS_S3_ENCRYPTION_KEY_ID BING_GROUNDING_TOKEN BRAVE_API_KEY
CIRCLE_OIDC_TOKEN CRW_API_KEY DATAFORSEO_PASSWORD E2B_API_KEY EXA_API_KEY FIRECRAWL_API_KEY GOOGLE_PSE_API_KEY
HCP_VAULT_TOKEN LANGFUSE_SECRET_KEY LANGTRACE_API_KEY LINKUP_API_KEY LOGFIRE_TOKEN MILVUS_API_KEY
MONGODB_SIDECAR_API_KEY NIMBLE_API_KEY OPEN_SANDBOX_API_KEY PARALLEL_AI_API_KEY PARALLEL_API_KEY PG_VECTOR_API_KEY
PHOENIX_API_KEY REDIS_AZURE_AD_TOKEN REDIS_PASSWORD REDIS_SENTINEL_PASSWORD SEARCHAPI_API_KEY SEARXNG_API_KEY
SERPER_API_KEY SLACK_API_SECRET SLACK_API_TOKEN SMTP_PASSWORD TAVILY_API_KEY TINYFISH_API_KEY YOUCOM_API_KEY API_KEY
KEYPAIR_JWT LENGTH_OF_LITELLM_GENERATED_KEY PROGRAMMATIC_ACCESS_TOKEN
""".split()  # noqa: SIM905, as quoted names it fills a page
"""Names in LiteLLM's sources that belong to no model: search, storage, logging; the last four are not variables."""
_SECRET = re.compile(r'"([A-Z][A-Z0-9_]*_(?:API_?KEY|KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS|KEY_ID|JWT))"')


def test_each_process_gets_what_it_needs() -> None:
    """The whole table, by one shell."""
    machine = {"PATH", "LC_ALL"}
    settings = {"RUNWIRE_LOG_LEVEL", "RUNWIRE_MODEL"}
    own = {"DATABASE_URL", "WEATHER_API_KEY", "TAVILY_API_KEY", "GITHUB_TOKEN", "AWS_REGION"}
    assert of_server(SHELL).keys() == machine
    assert of_service("tool_runner", SHELL).keys() == machine | settings
    assert of_service("gateway", SHELL).keys() == machine | settings | {"RUNWIRE_API_KEYS"}
    assert of_service("artifact_store", SHELL).keys() == machine | settings | {"RUNWIRE_S3_SECRET_KEY"}
    provider = {"OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "RUNWIRE_MODEL_API_KEY"}
    assert of_service("planner", SHELL).keys() == machine | settings | own | provider
    assert of_tools(SHELL).keys() == machine | settings | own | {"PYTHONPATH"}


@pytest.mark.parametrize("service", SERVICES)
def test_a_secret_setting_goes_to_the_services_that_read_it(service: str) -> None:
    """Also one that is added later: a service's secrets are those of its settings' fields that are `SecretStr`."""
    secrets = {
        f"RUNWIRE_{name.upper()}": "x"
        for name, field in SERVICES[service].model_fields.items()
        if field.annotation is SecretStr or SecretStr in get_args(field.annotation)
    }
    assert of_service(service, secrets).keys() == secrets.keys() - {"RUNWIRE_NATS_PASSWORD"}
    for other in SERVICES.keys() - {service}:
        assert not of_service(other, secrets)
    assert not of_tools(secrets)
    assert not of_server(secrets)


def test_all_secrets_that_litellm_reads_are_known() -> None:
    """A version of LiteLLM with further providers fails this test until they are on the list."""
    found = importlib.util.find_spec("litellm")
    assert found is not None
    assert found.origin is not None
    root = Path(found.origin).parent
    files = [
        *root.glob("*.py"),
        *(root / "llms").rglob("*.py"),
        *(root / "llms").rglob("*.json"),
        *(root / "litellm_core_utils").rglob("*.py"),
    ]
    named = {
        name
        for file in files
        if "secret_detection" not in str(file)
        for name in _SECRET.findall(file.read_text(encoding="utf-8"))
    }
    assert len(named) > 150, "the search has lost them"
    assert sorted(name for name in named if not is_provider_secret(name)) == sorted(named & set(OTHERS))
