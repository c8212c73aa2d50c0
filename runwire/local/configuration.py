"""Settings of `runwire up`: where they are found, which process gets which, and which names there are.

| where | what stands there | counts |
| --- | --- | --- |
| the environment | `RUNWIRE_MODEL`, keys of providers, what tools need | first |
| `.env` | the same, as `NAME=value` | second |
| `runwire.toml` | settings in lower case, without `RUNWIRE_`; lists and tables as TOML has them | last |

Each process gets an environment of its own: what it needs, without the secrets of others.

| process | variables of the shell that it gets |
| --- | --- |
| nats-server, the S3 server, what the services are forked from | those of the machine: paths, language, certificates |
| gateway, artifact_store, tables | those, and `RUNWIRE_*` without secrets of other services |
| tool_runner | those too, and the variables that the file of MCP servers names |
| planner | all but secrets of other services: LiteLLM reads hundreds of names |
| tools | all but secrets of services and of model providers |

Tools have settings of their own, so for them the removed variables are listed. A tool that needs a provider's key is
served with `runwire serve` in a shell that has the key.

All names are listed, so that a misspelt one is noticed: services ignore unknown variables. This package cannot import
`services/*/settings.py`: `tests/runwire/local/test_setting_names.py` compares the list with them.
"""

import contextlib
import difflib
import json
import re
import tomllib
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

from dotenv import dotenv_values

from runwire.local.supervisor import CannotLaunch

ENVIRONMENT, DOTENV, TOML = "environment", ".env", "runwire.toml"
_OF_ALL_COMMANDS = frozenset({"RUNWIRE_API_KEY", "RUNWIRE_DATA_DIR", "RUNWIRE_URL"})
"""A file of a folder must not say where other commands send a key, nor can they find what is elsewhere."""
_LOGIN = re.compile(r"//[^/@\s]+@")
_SETTING = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)


@dataclass(frozen=True)
class Setting:
    """A variable, its value, and where that was found."""

    name: str
    value: str
    source: str

    @property
    def shown(self) -> str:
        """The value without secrets."""
        return "•••" if is_secret(self.name) else _LOGIN.sub("//•••@", self.value)


def settings(environment: MutableMapping[str, str], folder: Path) -> list[Setting]:
    """All settings, and what else the files set, by name. Raises CannotLaunch for a file that cannot be used."""
    given = [Setting(name, value, ENVIRONMENT) for name, value in environment.items() if name.startswith("RUNWIRE_")]
    found: dict[str, Setting] = {}
    for file, read in ((folder / TOML, _of_toml), (folder / DOTENV, dotenv_values)):
        try:
            values = read(file) if file.is_file() else {}
        except (OSError, ValueError) as error:
            raise CannotLaunch(f"{file} cannot be read: {error}") from error
        found |= {name: Setting(name, value or "", file.name) for name, value in values.items()}
    if misplaced := sorted(found.keys() & _OF_ALL_COMMANDS):
        name = misplaced[0]
        raise CannotLaunch(f"{found[name].source}: {name} belongs into the environment, where all commands read it")
    found |= {name: Setting(name, environment[name], ENVIRONMENT) for name in found if name in environment}
    return sorted((found | {each.name: each for each in given}).values(), key=lambda each: each.name)


def apply(environment: MutableMapping[str, str], folder: Path) -> None:
    """Set what the files say and the environment does not. Raises CannotLaunch."""
    for each in settings(environment, folder):
        environment.setdefault(each.name, each.value)


def _of_toml(file: Path) -> dict[str, str | None]:
    """Each setting of a file as the text that a variable holds."""
    found: dict[str, str | None] = {}
    for name, value in tomllib.loads(file.read_text(encoding="utf-8")).items():
        if not _SETTING.fullmatch(name):
            raise CannotLaunch(f"{file}: {name} is no setting; write them in lower case and without RUNWIRE_")
        is_texts = isinstance(value, list) and all(isinstance(each, str) and "," not in each for each in value)
        try:
            text = ",".join(value) if is_texts else value if isinstance(value, str) else json.dumps(value)
        except TypeError:
            raise CannotLaunch(f"{file}: {name} is a date; write it as a text") from None
        found[f"RUNWIRE_{name.upper()}"] = text
    return found


Shell = Mapping[str, str]

_MACHINE = frozenset(
    """
DISPLAY GODEBUG GOGC GOMAXPROCS GOMEMLIMIT HOME HOSTNAME LANG LANGUAGE LOGNAME NO_COLOR PATH PWD SHELL SSL_CERT_DIR
SSL_CERT_FILE SYSTEMROOT TEMP TERM TMP TMPDIR TZ USER VIRTUAL_ENV
""".split()  # noqa: SIM905, as quoted names it fills a page
)
_MACHINE_PREFIXES = ("DYLD_", "LC_", "LD_", "PYTHON", "XDG_")
"""Prefixes of further names."""

_OWNERS = {
    "PYTHONPATH": "tools",  # a package there called `services` would be run in place of ours
    "RUNWIRE_API_KEY": "nobody",  # of the command line
    "RUNWIRE_API_KEYS": "gateway",
    "RUNWIRE_API_KEYS_FILE": "gateway",
    "RUNWIRE_HEALTH_FILE": "nobody",  # of one process that serves tools
    "RUNWIRE_MODEL_API_KEY": "planner",
    "RUNWIRE_NATS_CA": "nobody",  # `up` gives each process the login of its own server
    "RUNWIRE_NATS_CREDENTIALS": "nobody",
    "RUNWIRE_NATS_PASSWORD": "nobody",
    "RUNWIRE_NATS_USER": "nobody",
    "RUNWIRE_TABLES_PASSWORD_FILE": "tables",
    "RUNWIRE_TABLES_URL": "tables",
}
_S3 = "RUNWIRE_S3_"
_SECRET = re.compile(r"(KEYS?|SECRET|PASSWORD|TOKEN|CREDENTIALS)$")
"""How names of secrets end."""

_PROVIDERS = frozenset(
    """
ABLITERATION AI21 AIHUBMIX AIML ALEPHALPHA ALEPH_ALPHA AMAZON_NOVA ANTHROPIC ANTHROPIC_AWS ANYSCALE ARK ASSEMBLYAI
AZURE AZURE_AI AZURE_DOCUMENT_INTELLIGENCE AZURE_OPENAI AZURE_SPEECH BASETEN BEDROCK_MANTLE BFL BLACK_FOREST_LABS
BYTEZ CEREBRAS CHARITY_ENGINE CHUTES CLARIFAI CLOUDFLARE CO CODESTRAL COGNITION COHERE COMETAPI COMPACTIFAI CRUSOE
DARKBLOOM DASHSCOPE DATABRICKS DATAROBOT DEEPGRAM DEEPINFRA DEEPSEEK DOCKER_MODEL_RUNNER ELEVENLABS EMPIRIOLABS
EMPOWER FAL_AI FEATHERLESS FEATHERLESS_AI FIREWORKS FIREWORKSAI FIREWORKS_AI FRIENDLIAI GALADRIEL GDC GEMINI GIGACHAT
GITHUB GMI GOOGLE GRADIENT_AI GROQ HELICONE HEROKU HOSTED_VLLM HUGGINGFACE HYPERBOLIC INCEPTION INFINITY JINA JINA_AI
LAMBDA LANGFLOW LANGGRAPH LEMONADE LIBERTAI LITELLM LITELLM_PROXY LLAMA LLAMAFILE LLAMAGATE LM_STUDIO MANUS MARITALK
META MINIMAX MISTRAL MISTRAL_AZURE MODELSCOPE MOONSHOT MORPH NANOGPT NEBIUS NEOSANTARA NLP_CLOUD NOVITA NSCALE
NVIDIA_NIM NVIDIA_RIVA OLLAMA OPENAI OPENAI_LIKE OPENROUTER OR OVHCLOUD PALM PARASAIL PERPLEXITY PERPLEXITYAI
PINSTRIPES POE PREDIBASE PUBLICAI QWENCLOUD QWEN_AI_PLATFORM RAGFLOW RECRAFT REDUCTO REPLICATE RUNWAYML SAMBANOVA
SARVAM SCX SONIOX STABILITY STIMA SYNTHETIC TENCENT TENSORMESH_INFERENCE TOGETHER TOGETHERAI TOGETHER_AI TOPAZ V0
VENICE_AI VERCEL_AI_GATEWAY VERTEX_AI VOLCENGINE VOYAGE VOYAGE_AI WANDB WATSONX WX XAI XIAOMI_MIMO XINFERENCE ZAI
""".split()  # noqa: SIM905, see above
)
"""Providers whose `<name>_API_KEY` LiteLLM reads; `tests/runwire/local/test_environments.py` compares with LiteLLM's
sources."""
_PROVIDER_SECRETS = frozenset(
    """
AICORE_SERVICE_KEY AIMLAPI_KEY ANTHROPIC_AUTH_TOKEN AWS_ACCESS_KEY_ID AWS_BEARER_TOKEN_BEDROCK AWS_SECRET_ACCESS_KEY
AWS_SESSION_TOKEN AWS_WEB_IDENTITY_TOKEN AWS_WEB_IDENTITY_TOKEN_FILE AZURE_AD_TOKEN AZURE_CLIENT_SECRET AZURE_PASSWORD
BASETEN_KEY COMETAPI_KEY DATABRICKS_CLIENT_SECRET DATABRICKS_TOKEN DATAROBOT_API_TOKEN FIREWORKS_AI_TOKEN
FRIENDLI_TOKEN GIGACHAT_ACCESS_TOKEN GIGACHAT_CREDENTIALS GOOGLE_APPLICATION_CREDENTIALS HF_TOKEN JINA_AI_TOKEN
LITELLM_MASTER_KEY OCI_KEY OPENROUTER_KEY REPLICATE_API_TOKEN RUNWAYML_API_SECRET SCW_SECRET_KEY SNOWFLAKE_JWT
TOGETHER_AI_TOKEN VERCEL_OIDC_TOKEN VERTEXAI_CREDENTIALS VERTEX_CREDENTIALS VOYAGE_AI_TOKEN WATSONX_APIKEY
WATSONX_TOKEN WATSONX_ZENAPIKEY
""".split()  # noqa: SIM905, see above
)
"""Secrets of providers with other names. Those of Amazon, Microsoft and Google also open their clouds."""


def of_server(shell: Shell) -> dict[str, str]:
    """The environment of a program that is configured elsewhere."""
    return _chosen(shell, _is_of_machine)


def of_service(service: str, shell: Shell) -> dict[str, str]:
    """The environment of planner, gateway, tool_runner, artifact_store or tables."""
    named: set[str] = set()
    if service == "tool_runner" and (file := shell.get("RUNWIRE_MCP_SERVERS_FILE")):
        with contextlib.suppress(OSError, UnicodeDecodeError):  # The tool runner says what is wrong with it.
            named = set(re.findall(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}", Path(file).read_text(encoding="utf-8-sig")))

    def is_wanted(name: str) -> bool:
        known = service == "planner" or name.startswith("RUNWIRE_") or _is_of_machine(name) or name in named
        return known and _owner(name) in {None, service}

    return _chosen(shell, is_wanted)


def of_tools(shell: Shell) -> dict[str, str]:
    """The environment of a process that serves tools: code of other people."""
    try:  # The planner refuses a value that is not JSON.
        servers = json.loads(shell.get("RUNWIRE_MODEL_SERVERS", "{}"))
    except ValueError:
        servers = {}
    each = servers.values() if isinstance(servers, dict) else ()
    keys = {str(server.get("api_key_env")) for server in each if isinstance(server, dict)}
    return _chosen(
        shell, lambda name: _owner(name) in {None, "tools"} and not is_provider_secret(name) and name not in keys
    )


def is_provider_secret(name: str) -> bool:
    """Whether LiteLLM reads a secret of a provider of models from this variable."""
    return name in _PROVIDER_SECRETS or (name.endswith("_API_KEY") and name.removesuffix("_API_KEY") in _PROVIDERS)


def is_secret(name: str) -> bool:
    """Whether the value of a variable is not to be shown."""
    return is_provider_secret(name) or _SECRET.search(name) is not None


def _owner(name: str) -> str | None:
    """The only service that may read a variable; None: it is not a secret of Runwire."""
    return "artifact_store" if name.startswith(_S3) else _OWNERS.get(name)


def _is_of_machine(name: str) -> bool:
    return name in _MACHINE or (name.startswith(_MACHINE_PREFIXES) and name not in _OWNERS)


def _chosen(shell: Shell, is_wanted: Callable[[str], bool]) -> dict[str, str]:
    return {name: value for name, value in shell.items() if is_wanted(name)}


_PREFIX = "RUNWIRE_"
_TESTING = "RUNWIRE_TEST_"
OF_SERVICES = frozenset(
    """
ack_wait_s action_format action_transport agents_file api_keys api_keys_file artifact_default_days
artifact_grace_s artifact_max_bytes artifact_patience_s artifact_sweep_s artifact_uploads cors_origins
discover_s fallback_models gone_tool_s graceful_timeout_s health_host health_port heartbeat_s host keep_alive_s
log_format log_level max_body_bytes max_context_tokens model_reply_bytes model_servers
max_deliveries max_image_bytes max_image_pixels max_image_side max_images max_images_bytes max_open_runs
max_provider_failures max_repairs mcp_servers_file
max_result_bytes max_streams max_streams_per_tenant max_upload_bytes model model_api_base model_api_key model_idle_s
model_reasoning
model_total_s model_vision models nats_ca nats_password nats_password_file nats_url nats_user
pages_file plan_max_calls plan_max_argument_bytes plan_max_depth
planner_request_slots planner_slots port public_url reasoning_effort replicas request_head_s retention_days
s3_access_key s3_access_key_file s3_bucket s3_endpoint s3_on_demand s3_region s3_secret_key s3_secret_key_file s3_secure
settling_s stall_exit_s stalled_client_s thinking_first_models tools_file triage_model trust_tools unavailable_s
use_native_reasoning vision vision_context models observation_max_bytes observation_shown_characters
read_artifact_max_bytes
""".split()  # noqa: SIM905, as quoted names it fills a page
)
"""Fields of the services' settings, in lower case and without the prefix."""
OF_COMMANDS = frozenset(
    """
url api_key context data_dir data sync nats_credentials nats_public_url nats_public_ca health_file outbox
tables_url tables_password_file
""".split()  # noqa: SIM905, see above
)
"""Variables of the command line and of the example tools."""
OF_COMPOSE = frozenset(
    """
artifact_store_memory gateway_memory minio_instances nats_bind nats_hosts nats_memory nats_port planner_memory
postgres_memory s3_memory tables_memory tool_runner_memory tools_memory
""".split()  # noqa: SIM905, see above
)
"""Variables of docker-compose.yml itself."""


def misspelt(environment: Mapping[str, str]) -> list[str]:
    """Return a warning, without the value, for each variable `RUNWIRE_*` that nothing reads."""
    known = {f"{_PREFIX}{name.upper()}" for name in OF_SERVICES | OF_COMMANDS | OF_COMPOSE}
    unread = sorted(
        name for name in environment if name.startswith(_PREFIX) and not name.startswith(_TESTING) and name not in known
    )
    close = {name: difflib.get_close_matches(name, sorted(known), 1, 0.75) for name in unread}
    return [
        f"{name} is not a setting: nothing reads it" + (f"; did you mean {close[name][0]}?" if close[name] else "")
        for name in unread
    ]
