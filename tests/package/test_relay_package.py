"""The relay from its Debian package, with its unit, on a machine without the rest of the gateway."""

from pathlib import Path

from tests.support.machine import booted
from tests.support.nats import find_public_key, make_seed, running_nats
from tests.support.package import install, state_of
from tests.support.stack import running_stack, wait_for


def test_the_relay_is_off_until_it_is_enabled_and_leaves_nothing_after_a_purge(
    packages: dict[str, Path], tmp_path: Path
) -> None:
    seed = make_seed()
    users = f"authorization {{ users: [ {{ nkey: {find_public_key(seed)} }} ] }}"
    with (
        booted(tmp_path / "root") as machine,
        machine.network(),
        running_stack(tmp_path / "state", sessions=50) as (api, _),
        running_nats(tmp_path / "nats", users, {"nkeys_seed_str": seed}) as nats,
    ):
        nats.add_stream()
        install(machine, [packages["gateway-relay"]])
        assert state_of(machine, "gateway-relay") == "inactive"
        settings = machine.root / "etc/gateway-api"
        (settings / "gateway-relay-ca.pem").write_text(Path(api.environment["GATEWAY_CA"]).read_text())
        secrets = settings / "gateway-relay"
        assert secrets.stat().st_mode & 0o777 == 0o700
        (secrets / "nkey").write_text(seed)
        (secrets / "password").write_text(api.environment["OPERATOR_PASSWORD"])
        lines = [
            f"GATEWAY_RELAY_NATS={nats.url}",
            "GATEWAY_RELAY_NAME=bng-1",
            f"GATEWAY_RELAY_URL={api.url}",
            "GATEWAY_RELAY_CA=/etc/gateway-api/gateway-relay-ca.pem",
            f"GATEWAY_RELAY_USER={api.environment['OPERATOR_USER']}",
        ]
        with (settings / "gateway-relay.env").open("a") as file:
            file.write("\n".join([*lines, ""]))
        machine.run("systemctl", "enable", "--now", "gateway-relay")
        wait_for("the snapshot", lambda: nats.list_messages("gw.bng-1.snapshot"))
        machine.run("systemctl", "stop", "gateway-relay")
        assert state_of(machine, "gateway-relay") == "inactive"
        assert nats.list_messages("gw.bng-1.audit") == []
        machine.run("apt-get", "--yes", "purge", "gateway-relay")
        for path in ("etc/gateway-api/gateway-relay", "var/lib/gateway-relay", "usr/lib/gateway-relay"):
            assert not (machine.root / path).exists()
        assert machine.attempt("getent", "passwd", "gateway-relay").returncode != 0
