"""The environment of each process of `runwire up`: what it needs, without the secrets of others.

| process | variables of the shell that it gets |
| --- | --- |
| nats-server, the S3 server, what the services are forked from | those of the machine: paths, language, certificates |
| gateway, artifact_store, tables | those, and `RUNWIRE_*` without secrets of other services |
| tool_runner | those too, and the variables that the file of MCP servers names |
| planner | all but secrets of other services: LiteLLM reads hundreds of names |
| tools | all but secrets of services and of model providers |

Tools have settings of their own, so for them the removed variables are listed. A tool that needs a provider's key is
served with `runwire serve` in a shell that has the key.
"""

import contextlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

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
