"""The compose file and what it starts, as far as it can be checked without containers."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from services.shared.runs.pages.registry import load_pages
from services.tables.csv_tools import tools_of
from services.tables.database import Database

ROOT = Path(__file__).resolve().parent.parent
PAGES = "./config/pages:/pages:ro"
DOCKERFILE = (ROOT / "infra" / "docker" / "Dockerfile").read_text(encoding="utf-8")
IMPORT_ALL = """
import importlib, pathlib
for file in sorted(pathlib.Path().rglob("*.py")):
    if file.parts[0] in {"contracts", "runwire", "services"} and not {"templates", "migrations"} & {*file.parts}:
        importlib.import_module(".".join(file.with_suffix("").parts).removesuffix(".__init__"))
"""
MAKE_SECRETS = ROOT / "infra" / "docker" / "make_secrets.py"


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = pytest.importorskip("yaml").safe_load(
        (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    )
    return loaded


def mounts(service: dict[str, Any]) -> dict[str, str]:
    parts = (text.split(":") for text in service.get("volumes", []))
    return {where: name for name, where, *_ in parts}


def test_the_keys_of_the_s3_server_are_with_the_store_alone(compose: dict[str, Any]) -> None:
    """Who takes requests from outside cannot even read them."""
    services = compose["services"]
    (volume,) = {name for where, name in mounts(services["artifact_store"]).items() if "secret" in where}
    assert {name for name, service in services.items() if volume in mounts(service).values()} == {
        "secrets",
        "minio",
        "seaweedfs",
        "artifact_store",
    }
    for name in ("minio", "artifact_store"):
        files = [text for text in services[name]["environment"].values() if "secret" in text]
        assert len(files) == 2
        assert all(mounts(services[name])[str(Path(file).parent)] == volume for file in files)


def test_the_password_of_the_database_is_with_the_tables_alone(compose: dict[str, Any]) -> None:
    """A network of its own, a secret of its own; the schema is migrated before the service starts, with every tool."""
    services = compose["services"]
    of = {"postgres", "tables", "tables_migrations"}
    having = {name for name, service in services.items() if "tables-secrets" in mounts(service).values()}
    assert having == {"secrets", *of}
    assert {name for name, service in services.items() if "database" in service.get("networks", [])} == of
    assert services["tables"]["depends_on"]["tables_migrations"] == {"condition": "service_completed_successfully"}
    assert services["tables_migrations"]["depends_on"]["postgres"] == {"condition": "service_healthy"}
    of_secrets = services["secrets"]["environment"].items()
    named = next(value for name, value in of_secrets if name.endswith("_TABLES_TOOL_NAMES")).split()
    assert {*named} == {tool.name for tool in tools_of(Database("sqlite:///unused.db"))}


def test_containers_hold_nothing_that_they_do_not_need(compose: dict[str, Any]) -> None:
    """Every service of ours runs without privileges, on a root file system that it cannot write."""
    for name in ("gateway", "planner", "tool_runner", "artifact_store", "tools", "tables", "tables_migrations"):
        service = compose["services"][name]
        assert service["read_only"] is True, name
        assert (service["cap_drop"], service["security_opt"]) == (["ALL"], ["no-new-privileges:true"]), name
    for name, service in compose["services"].items():
        assert service["logging"]["options"]["max-size"], name
        assert service["mem_limit"], name
    published = {name: service["ports"] for name, service in compose["services"].items() if "ports" in service}
    assert published == {
        "gateway": ["127.0.0.1:${RUNWIRE_PORT:-8080}:8081"],
        "nats": ["${RUNWIRE_NATS_BIND:-127.0.0.1}:${RUNWIRE_NATS_PORT:-4222}:4222"],
    }


def test_a_container_has_its_own_password_on_nats_and_no_other(compose: dict[str, Any]) -> None:
    """The volume of a user is mounted by its service; that of all users by what makes and gives out credentials."""
    services = compose["services"]
    logins = {
        name: {volume for volume in mounts(service).values() if "login" in volume} for name, service in services.items()
    }
    of_all = logins.pop("secrets")
    assert of_all == {name for name in compose["volumes"] if name.startswith("login-")}
    assert {name: volumes for name, volumes in logins.items() if volumes} == {
        **{
            name: {f"login-{name}"}
            for name in ("gateway", "planner", "tool_runner", "artifact_store", "tools", "tables")
        },
        "provision": {"login-provisioner"},
    }
    for name in ("gateway", "planner", "tool_runner", "artifact_store"):
        assert services[name]["environment"]["RUNWIRE_NATS_USER"] == name
    knows_all = {name for name, service in services.items() if "nats-identities" in mounts(service).values()}
    assert knows_all == {"secrets", "accounts", "credentials", "operator"}
    assert {name for name, service in services.items() if "tools" in service.get("networks", [])} == {
        "nats",
        "tools",
        "tables",
    }


def env_files(service: dict[str, Any]) -> set[str]:
    """The files that a service's environment is read from."""
    return {entry if isinstance(entry, str) else entry["path"] for entry in service.get("env_file", [])}


def test_keys_of_providers_reach_the_planner_alone(compose: dict[str, Any]) -> None:
    """Neither their files nor their variables are in another container."""
    for name, service in compose["services"].items():
        found = {file for file in env_files(service) if file.endswith("providers.env")}
        assert len(found) == (2 if name == "planner" else 0), name
        volumes = {*service.get("volumes", [])} - {f"./config/{name}:/config:ro", PAGES}
        assert "config" not in " ".join(volumes), name


def test_gateway_and_planner_have_the_same_pages(compose: dict[str, Any]) -> None:
    """A page that one of them did not know would be refused, or fail the run."""
    having = {name for name, service in compose["services"].items() if PAGES in service.get("volumes", [])}
    assert having == {"gateway", "planner"}
    assert "orders" in load_pages(ROOT / "config" / "pages" / "pages.toml.example").pages


def names(file: str) -> set[str]:
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    return {line.partition("=")[0] for line in lines if line and not line.startswith("#")}


@pytest.mark.skipif(os.name != "posix", reason="owners and modes of files")
def test_secrets_are_made_once(tmp_path: Path, compose: dict[str, Any]) -> None:
    """Each file that the services read is there; the second start keeps them all."""
    folders = mounts(compose["services"]["secrets"])
    text = MAKE_SECRETS.read_text(encoding="utf-8").replace("OWNER = 10001", f"OWNER = {os.getuid()}")
    for folder in folders:
        (tmp_path / folder.strip("/")).mkdir(parents=True, exist_ok=True)
    for folder in re.findall(r'Path\("(/[^"]*)"\)', text):
        text = text.replace(f'Path("{folder}")', f'Path("{tmp_path}{folder}")')
    environment = {
        **os.environ,
        **compose["services"]["secrets"]["environment"],
        "RUNWIRE_NATS_HOSTS": "",
        "RUNWIRE_DATA_DIR": f"{tmp_path}/identities",
    }
    kept: list[dict[str, str]] = []
    for _ in range(2):
        ran = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, check=True, text=True)
        found = {
            str(path.relative_to(tmp_path)): path.read_text(encoding="utf-8")
            for path in tmp_path.rglob("*")
            if path.is_file() and path.stat().st_size
        }
        assert not any(secret.strip() in ran.stdout for secret in found.values())
        kept.append(found)
    assert kept[0] == kept[1]
    wanted = [value for service in compose["services"].values() for value in service.get("environment", {}).values()]
    assert {value.lstrip("/") for value in wanted if re.match(r"/((s3|tables)-)?secrets/", str(value))} <= set(found)
    assert hashlib.sha256(found["secrets/api_key"].encode()).hexdigest() in found["secrets/api_keys"]
    for name in ("gateway", "planner", "tool_runner", "artifact_store", "provisioner"):
        assert found[f"logins/{name}/password"] in found["identities/nats/accounts.conf"]
    for name in ("tools", "tables"):
        assert json.loads(found[f"logins/{name}/credential.json"])["url"] == "nats://nats:4222"
    assert all((tmp_path / name).stat().st_mode & 0o007 == 0 for name in found)


def test_what_ends_itself_is_started_again(compose: dict[str, Any]) -> None:
    """Compose does not restart what is unhealthy, so a stuck process ends itself; a signal always reaches it."""
    for name in ("gateway", "planner", "tool_runner", "artifact_store"):
        service = compose["services"][name]
        assert (service["restart"], service["init"]) == ("unless-stopped", True), name
        assert service["environment"].get("RUNWIRE_STALL_EXIT_S") != "0", name
        assert "healthy.py" in " ".join(service["healthcheck"]["test"])
    nats = compose["services"]["nats"]
    assert nats["restart"] == "unless-stopped"
    assert mounts(nats)["/etc/nats/healthy.sh"] == "./infra/nats/healthy.sh"
    assert nats["healthcheck"]["test"][-1] == "/etc/nats/healthy.sh"
    # Nothing is between the server and the signal that ends it.
    assert "init" not in nats


def _copied(stage: str) -> list[list[str]]:
    """What the image of a stage holds of the checkout: the arguments of COPY, those of the stage below first."""
    begins = re.compile(rf"^FROM (\S+) AS {stage}\n(.*?)(?=^FROM|\Z)", re.MULTILINE | re.DOTALL)
    ((below, lines),) = begins.findall(DOCKERFILE)
    own = [line.split()[1:] for line in lines.splitlines() if line.startswith("COPY ") and "--from" not in line]
    return [*(_copied(below) if f"AS {below}\n" in DOCKERFILE else []), *own]


@pytest.mark.parametrize("stage", ["gateway", "planner", "tool_runner", "artifact_store", "tables", "tools"])
def test_an_image_holds_what_its_programs_import(stage: str, tmp_path: Path) -> None:
    """Each module of an image can be imported with what the image holds of the checkout."""
    for *sources, target in _copied(stage):
        if target.startswith("/"):
            continue  # Programs that Python and the image run by themselves.
        for source in sources:
            into = tmp_path / target / (Path(source).name if target.endswith("/") else "")
            into.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if (ROOT / source).is_dir() else shutil.copy)(ROOT / source, into)
    subprocess.run(
        [sys.executable, "-c", IMPORT_ALL], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, check=True
    )
