"""The names of all settings, so that a misspelt one is noticed: the services ignore variables that they do not know.

`tests/runwire/cli/test_setting_names.py` compares them with `services/*/settings.py`, which this package cannot import.
"""

import difflib
from collections.abc import Mapping

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
