"""The file with the users of NATS, and the accounts file that nats-server reads."""

import json
import stat
import subprocess
from pathlib import Path

import pytest

from contracts.wire.names import InvalidName
from contracts.wire.rights import LOCAL_TOOLS, of_platform
from runwire.errors import UnknownIdentity
from runwire.identities import accounts_file, changed, one_reload, read
from tests.support.needs import needs_program

RUN = "0" * 32


def test_the_same_names_give_the_same_credential(tmp_path: Path) -> None:
    """A second process, or a second start, finds what the first has made."""
    with changed(tmp_path) as known:
        user = known.add_tools("weather")
        password = known.passwords[user]
    with changed(tmp_path) as known:
        assert known.add_tools("weather") == user == "tool_weather"
        assert known.add_tools("sun", "moon", "sun") == "tools_sun.moon"
        assert known.add_listener("acme") == "listener_acme"
        assert known.add_listener("acme", RUN) == f"run_acme_{RUN}"
    assert read(tmp_path).passwords[user] == password
    assert len(set(read(tmp_path).passwords.values())) == len(read(tmp_path).passwords)
    assert min(map(len, read(tmp_path).passwords.values())) >= 43


def test_a_revoked_credential_is_another_one_when_it_is_made_again(tmp_path: Path) -> None:
    """Its password is never given out again. Users of the platform cannot be revoked."""
    with changed(tmp_path) as known:
        user = known.add_tools("weather")
        before = known.passwords[user]
    with changed(tmp_path) as known:
        known.revoke(user)
    assert user not in accounts_file(tmp_path).read_text()
    with changed(tmp_path, any_tool=True) as known:
        assert known.add_tools("weather") == user
        assert known.passwords[user] != before
        for platforms in ("planner", LOCAL_TOOLS):
            with pytest.raises(UnknownIdentity):
                known.revoke(platforms)


def test_no_name_gives_the_credential_of_a_service(tmp_path: Path) -> None:
    """The user of a tool `runner` is not `tool_runner`, and so on with every user of the platform."""
    platform = of_platform()
    with changed(tmp_path, any_tool=True) as known:
        users = [known.add_tools(name.removeprefix("tool_").removeprefix("tools_")) for name in platform]
        users += [known.add_tools("runner", "operator"), known.add_listener("tool_runner")]
        assert {*users}.isdisjoint({*platform, "local"})
        assert all(known.rights()[name] == right for name, right in platform.items())


def test_only_the_owner_can_read_the_files(tmp_path: Path) -> None:
    """Two hold passwords; the locks beside them are no exception that somebody would have to explain."""
    with changed(tmp_path), one_reload(tmp_path):
        pass
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.rglob("*") if file.is_file()}
    assert modes == dict.fromkeys(("identities.json", "accounts.conf", "identities.lock", "reload.lock"), 0o600)


def test_a_name_that_is_no_name_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    """A wildcard in a name would be a right to everything."""
    with changed(tmp_path):
        pass
    before = accounts_file(tmp_path).read_text()
    for bad in ("*", ">", "a.b", "a b", "", 'x"', "local.>", "x" * 65):
        with pytest.raises(InvalidName), changed(tmp_path) as known:
            known.add_tools(bad)
        with pytest.raises(InvalidName), changed(tmp_path) as known:
            known.add_listener(bad)
    with pytest.raises(InvalidName), changed(tmp_path) as known:
        known.add_listener("acme", "*")
    assert accounts_file(tmp_path).read_text() == before


def test_the_server_takes_the_accounts(tmp_path: Path) -> None:
    """nats-server itself checks the file."""
    with changed(tmp_path, any_tool=True) as known:
        known.add_tools("weather")
        known.add_listener("acme", RUN)
    configuration = tmp_path / "nats.conf"
    store = json.dumps(str(tmp_path / "store"))
    configuration.write_text(f'server_name: "x"\njetstream {{ store_dir: {store} }}\ninclude "nats/accounts.conf"\n')
    command = [str(needs_program("nats-server")), "-t", "-c", str(configuration)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
