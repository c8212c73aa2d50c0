"""Which model answers: the running planner says it; without one, what `runwire up` would choose from this shell."""

from collections.abc import Mapping

from contracts.runs.requests import AgentModels
from contracts.wire.default_models import DEMO_MODEL, MODEL_BY_KEY, OLLAMA_PORT
from runwire.cli.check import Check
from runwire.local import launch

_CONFIGURE = "set RUNWIRE_MODEL, or a provider's key, and start `runwire up` again"


def planners_model(agents: list[AgentModels]) -> Check:
    """What the running planners use. `agents`: as the gateway lists them."""
    models = {agent.name: ", ".join(agent.models) for agent in agents}
    if not models:
        return Check("model", "warning", "no planner runs, so questions wait", "see its log: runwire logs -s planner")
    usual = models.pop("default", "")
    others = [f"{name}: {model}" for name, model in models.items() if model != usual]
    finding = "; ".join([f"{usual} (the planner's)", *others] if usual else others)
    if usual == DEMO_MODEL:
        return Check("model", "warning", f"{finding}: the demo model, which follows a few rules", _CONFIGURE)
    return Check("model", "ok", finding)


def model_of_next_start(env: Mapping[str, str]) -> Check:
    """What `runwire up` would use if it were started in this shell."""
    would = "would answer after `runwire up` in this shell"
    if env.get("RUNWIRE_MODEL"):
        return Check("model", "ok", f"{env['RUNWIRE_MODEL']} {would} (RUNWIRE_MODEL)")
    for key, model in MODEL_BY_KEY.items():
        if env.get(key, "").strip():
            return Check("model", "ok", f"{model} {would} ({key})")
    if launch.listens(OLLAMA_PORT):
        return Check("model", "ok", f"one of the local Ollama on port {OLLAMA_PORT} {would}")
    return Check("model", "warning", f"the demo model {DEMO_MODEL} {would}", _CONFIGURE)
