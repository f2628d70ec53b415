"""The first start of a gateway on Linux: what a machine lacks, and the first configuration."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway_contract.base.errors import GatewayApiError
from gateway_contract.configuration import Configuration, VlanRange
from gateway_core.commands.linux import Ask, SetupOptions, set_up
from gateway_core.configuration.running import RunningConfiguration
from gateway_core.gateways.linux.daemons.frr import MARK
from gateway_core.gateways.linux.health import KERNEL_MODULES, SOURCE_DAEMONS
from tests.support.documents import SECRET_HASH

KERNEL = "6.1.0-56-amd64"
PROGRAMS = {
    "usr/sbin/pppoe-server": "pppoe",
    "usr/sbin/pppd": "ppp",
    "usr/bin/ip": "iproute2",
    "usr/sbin/dnsmasq": "dnsmasq-base",
    "usr/bin/dhcp_release": "dnsmasq-utils",
    "usr/bin/vtysh": "frr",
    "usr/lib/frr/frr-reload.py": "frr-pythontools",
    "usr/lib/polkit-1/polkitd": "polkitd",
    "usr/sbin/nft": "nftables",
}
PPP = "ppp_generic", "ppp_async", "pppoe"
REBOOT = "apt-get install linux-image-$(dpkg --print-architecture), then reboot into that kernel"


def place_program(root: Path, path: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).touch(mode=0o755)


def place_accel_ppp(root: Path) -> None:
    for name in ("accel-pppd", "accel-cmd"):
        place_program(root, f"usr/local/sbin/{name}")


def place_modules(root: Path, *names: str) -> None:
    """Modules that modprobe finds in the kernel itself."""
    folder = root / "lib/modules" / KERNEL
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "modules.builtin").write_text("".join(f"kernel/{name}.ko\n" for name in names))
    subprocess.run(["depmod", "--basedir", str(root), KERNEL], check=True, capture_output=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The file system of a machine that has all."""
    for name in ("lo", "eth0", "eth1", "eth2"):
        (tmp_path / "sys/class/net" / name).mkdir(parents=True)
    # Of the driver of bonds.
    (tmp_path / "sys/class/net/bonding_masters").write_text("\n")
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/osrelease").write_text(f"{KERNEL}\n")
    place_modules(tmp_path, *KERNEL_MODULES, *PPP)
    for path in PROGRAMS:
        place_program(tmp_path, path)
    (tmp_path / "etc/frr").mkdir(parents=True)
    # A comment may have bytes of another character set.
    (tmp_path / "etc/frr/daemons").write_bytes(b"# d\xe9mons\n# bgpd=no\nbgpd=yes\nospfd=no\n")
    (tmp_path / "etc/gateway-api").mkdir()
    users(tmp_path).write_text(
        json.dumps([{"username": "admin", "role": "admin", "password_hash": SECRET_HASH}])
    )
    return tmp_path


def users(root: Path) -> Path:
    return root / "etc/gateway-api/first-users.json"


def written(root: Path) -> Path:
    return root / "etc/gateway-api/first-configuration.json"


def options(**changed: object) -> SetupOptions:
    flags = {
        "trunk": ["eth1"],
        "uplink": ["eth0"],
        "range": "100.64.0.0/16",
        "source": ["pppoe-server"],
        "frr": "",
    }
    return SetupOptions(**{**flags, **changed})


def ready(root: Path, chosen: SetupOptions | None = None, *, ask: Ask | None = None) -> bool:
    return set_up(chosen or options(), root, "bng7", ask)


def answers(*lines: str) -> Callable[[str], str]:
    """A terminal on which an operator types these lines, and no more."""
    left = list(lines)
    return lambda _: left.pop(0)


def made(root: Path) -> Configuration:
    return RunningConfiguration.read_first(written(root), users(root)).sections


def test_a_complete_machine_gets_a_configuration_that_the_core_can_begin_with(root: Path) -> None:
    assert ready(root, options(trunk=["eth1", "eth2"]))
    first = made(root)
    assert first.system.hostname == "bng7"
    assert first.interfaces.trunks == first.demux.trunks == ("eth1", "eth2")
    assert first.interfaces.uplinks == ("eth0",)
    assert str(first.cgnat.source_range) == "100.64.0.0/16"
    # The core can read the file; the users are in their own.
    assert [user.username for user in first.api.users] == ["admin"]
    assert written(root).stat().st_mode & 0o777 == 0o644
    assert SECRET_HASH not in written(root).read_text()


@pytest.mark.parametrize(
    ("sources", "types", "length"),
    [
        (["pppoe-server"], ["pppoe"], 26),
        (["dnsmasq"], ["dhcp"], 16),
        (["dnsmasq", "pppoe-server"], ["pppoe", "dhcp"], 16),
        (["accel-ppp"], ["pppoe", "dhcp"], 27),
    ],
)
def test_each_type_that_a_source_serves_has_a_profile_of_vlans(
    root: Path, sources: list[str], types: list[str], length: int
) -> None:
    if "accel-ppp" in sources:
        place_accel_ppp(root)
    assert ready(root, options(source=sources, range=f"100.64.0.0/{length}"))
    assert [profile.type for profile in made(root).demux.vlan_profiles] == types


def test_an_installed_accel_ppp_is_the_source_unless_another_is_named(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ready(root, options(source=["dnsmasq"]))
    assert "--source" not in capsys.readouterr().out
    place_accel_ppp(root)
    assert ready(root)
    said = capsys.readouterr().out
    assert "gateway-core linux takes accel-ppp unless its unit says --source pppoe-server.\n" in said


def test_sources_that_are_not_named_are_those_that_are_installed(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "usr/bin/dhcp_release").unlink()
    assert ready(root, options(source=[]))
    said = capsys.readouterr().out
    assert "Source of pppoe sessions: pppoe-server\n" in said
    assert "Source of dhcp sessions: none is installed or named\n" in said
    assert [(profile.type, profile.vlan_range) for profile in made(root).demux.vlan_profiles] == [
        ("pppoe", VlanRange(1000, 3999))
    ]


@pytest.mark.parametrize("path", PROGRAMS)
def test_a_missing_program_is_named_with_the_command_that_installs_it(
    root: Path, capsys: pytest.CaptureFixture[str], path: str
) -> None:
    (root / path).unlink()
    assert not ready(root, options(source=["pppoe-server", "dnsmasq"]))
    command = f"apt-get install {PROGRAMS[path]}"
    assert f"missing programs: {Path(path).name}\n    {command}\n" in capsys.readouterr().out
    # Nothing is written while something is missing.
    assert not written(root).exists()
    if "dnsmasq" in path or "dhcp" in path:
        assert ready(root)


def test_accel_ppp_is_no_package_of_debian(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not ready(root, options(source=["accel-ppp"]))
    said = capsys.readouterr().out
    assert "missing programs: accel-pppd, accel-cmd\n" in said
    assert "https://github.com/accel-ppp/accel-ppp" in said
    assert "apt-get" not in said


@pytest.mark.parametrize("name", [*KERNEL_MODULES, "ppp_generic", "ppp_async"])
def test_a_missing_kernel_module_is_named_with_the_kernel_that_has_it(
    root: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    place_modules(root, *({*KERNEL_MODULES, *PPP} - {name}))
    assert not ready(root)
    assert f"missing kernel modules: {name}\n    {REBOOT}\n" in capsys.readouterr().out
    # One that is loaded, or of a source that is not used, is not missed.
    if name in KERNEL_MODULES:
        (root / "sys/module" / name).mkdir(parents=True)
        assert ready(root)
    else:
        assert ready(root, options(source=["dnsmasq"]))


def test_an_interface_that_does_not_exist_is_named(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not ready(root, options(trunk=["eth1", "eth9"], uplink=["eth8"]))
    said = capsys.readouterr().out
    assert "missing interfaces: eth9, eth8\n    this machine has eth0, eth1, eth2\n" in said


@pytest.mark.parametrize("text", ["bgpd=no\n", "bgpd=yes\nbgpd=no\n", "#bgpd=yes\n", "zebra=yes\n"])
def test_a_bgpd_that_frr_does_not_start_is_named_with_the_command_that_enables_it(
    root: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    daemons = root / "etc/frr/daemons"
    daemons.write_text(text)
    assert not ready(root)
    (command,) = (line.strip() for line in capsys.readouterr().out.splitlines() if "sed " in line)
    edit, _, restart = command.rpartition(" && ")
    assert restart == "systemctl restart frr"
    subprocess.run(["sh", "-c", edit.replace("/etc/frr/daemons", str(daemons))], check=True)
    assert ready(root)


@pytest.mark.parametrize("flag", ["trunk", "uplink", "range", "source"])
def test_a_value_that_is_not_given_is_required_without_a_terminal(root: Path, flag: str) -> None:
    for path in ("usr/sbin/pppd", "usr/sbin/dnsmasq") if flag == "source" else ():
        (root / path).unlink()
    with pytest.raises(GatewayApiError, match=rf"^--{flag}: required without a terminal$"):
        ready(root, options(**{flag: []}))
    if flag == "source":
        with pytest.raises(
            GatewayApiError, match=rf"^--source: 'accel' is none of {', '.join(SOURCE_DAEMONS)}$"
        ):
            ready(root, options(source=[]), ask=answers("accel"))


def test_an_operator_is_asked_for_what_no_flag_says(root: Path) -> None:
    typed = answers("", "eth1, eth2", "100.64.0.0/24")
    assert ready(root, options(trunk=[], range=""), ask=typed)
    assert made(root).interfaces.trunks == ("eth1", "eth2")
    assert str(made(root).cgnat.source_range) == "100.64.0.0/24"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"range": "100.64.0.0/27"}, "--range: too small"),
        ({"range": "100.64.0.0/33"}, "--range: must "),
        ({"range": "127.0.0.0/8"}, "--range: must "),
        ({"trunk": ["../eth1"]}, "--trunk: must "),
        ({"uplink": ["eth 0"]}, "--uplink: must "),
        ({"uplink": ["eth1"]}, "--uplink: must "),
        (
            {"source": ["pppoe-server", "accel-ppp"]},
            "pppoe-server and accel-ppp both serve pppoe",
        ),
        ({"api_address": "192.0.2.1"}, "--api-address: must be all or an address of this machine"),
        ({"api_address": "127.0.0.1:8443"}, "--api-address: must be all or an address of this machine"),
    ],
    ids=str,
)
def test_a_value_that_the_core_would_refuse_is_refused_with_its_flag(
    root: Path, changed: dict[str, object], said: str
) -> None:
    file = settings(root)
    before = file.read_text()
    with pytest.raises(GatewayApiError, match=f"^{said}"):
        ready(root, options(**changed))
    assert (file.read_text(), written(root).exists()) == (before, False)


def test_a_host_name_that_is_none_and_a_first_user_that_lacks_are_refused(root: Path) -> None:
    with pytest.raises(GatewayApiError, match=r"^the host name of this machine: must be a host name"):
        set_up(options(), root, "bng_7", None)
    users(root).unlink()
    with pytest.raises(GatewayApiError, match="run gateway-api-setup"):
        ready(root)


def test_a_first_configuration_is_never_overwritten(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(root).write_text("{}")
    assert ready(root)
    assert written(root).read_text() == "{}"
    assert f"{written(root)} exists, and stays as it is" in capsys.readouterr().out


def test_a_machine_with_a_running_configuration_is_checked_and_its_change_is_the_api_s(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = root / "var/lib/gateway-core/configuration/state.json"
    state.parent.mkdir(parents=True)
    state.write_text("{}")
    (root / "usr/sbin/pppd").unlink()
    assert not ready(root, options(trunk=[], uplink=[], range=""))
    said = capsys.readouterr().out
    assert "`gatewayctl config` to set interfaces.trunks" in said
    assert "missing programs: pppd\n" in said
    assert not written(root).exists()


# FRR.

FOREIGN = """\
! of the operator
frr version 8.4.4
log syslog informational
ip route 10.9.0.0/16 10.255.0.2
router ospf
 area 0 authentication
exit
router bgp 65001
 neighbor 10.255.0.2 password s3cret
exit
"""
LOST = ["router bgp 65001", " neighbor 10.255.0.2 password ..."]


def frr_conf(root: Path, text: str = FOREIGN) -> Path:
    path = root / "etc/frr/frr.conf"
    path.write_text(text)
    return path


def test_another_s_bgp_is_refused_with_the_lines_that_would_go_or_kept_by_choice(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = frr_conf(root)
    assert not ready(root)
    said = capsys.readouterr().out
    assert "these lines would go:\n" + "".join(f"    {line}\n" for line in LOST) in said
    assert "--frr replace" in said and "--frr keep" in said
    assert not written(root).exists()
    assert ready(root, options(frr="keep"))
    assert "FRR keeps its BGP instance" in capsys.readouterr().out
    assert file.read_text() == FOREIGN
    # The next setup asks again: nothing else remembers it.
    assert not ready(root)


def test_an_operator_gives_bgp_to_the_gateway_and_has_a_copy(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = frr_conf(root)
    assert ready(root, options(frr="replace"))
    copy = root / "etc/frr/frr.conf.before-gateway"
    assert f"which {copy} keeps:" in capsys.readouterr().out
    assert copy.read_text() == FOREIGN
    assert file.read_text() == f"{FOREIGN}\n{MARK}\n"
    assert ready(root)
    frr_conf(root, "router bgp 1\n")
    assert ready(root, options(frr="replace"))
    assert (root / "etc/frr/frr.conf.before-gateway.1").read_text() == "router bgp 1\n"


@pytest.mark.parametrize(
    "text",
    [
        *("", "router ospf\nrouter bgp 65001 vrf customer\n", f"router bgp 1\n{MARK}\n"),
        # What the gateway wrote, without its mark.
        "frr version 8.4.4\nrouter bgp 65001\n bgp router-id 10.255.0.1\nexit\n",
    ],
)
def test_an_frr_without_bgp_and_that_of_the_gateway_are_no_question(root: Path, text: str) -> None:
    frr_conf(root, text)
    placed = root / "var/lib/gateway-core/services/frr.conf"
    placed.parent.mkdir(parents=True)
    placed.write_text("! Rendered.\nrouter bgp 65001\n bgp router-id 10.255.0.1\nexit\n")
    assert ready(root)


# The address of the API.


def settings(root: Path, text: str = "# Address and port.\n#GATEWAY_API_BIND=0.0.0.0:8443\n") -> Path:
    file = root / "etc/gateway-api/gateway-api.env"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, errors="surrogateescape")
    return file


@pytest.mark.parametrize(
    ("before", "address", "after"),
    [
        ("#GATEWAY_API_BIND=0.0.0.0:8443\n", "127.0.0.1", "GATEWAY_API_BIND=127.0.0.1:8443\n"),
        ("#GATEWAY_API_BIND=0.0.0.0:8443\n", "all", "#GATEWAY_API_BIND=0.0.0.0:8443\n"),
        ("GATEWAY_API_BIND=192.0.2.1:443\n", "all", "GATEWAY_API_BIND=0.0.0.0:443\n"),
        ("A=1", "127.0.0.1", "A=1\nGATEWAY_API_BIND=127.0.0.1:8443\n"),
        # The last one counts (systemd.exec(5)), and none in a comment.
        (
            "GATEWAY_API_BIND=192.0.2.1:443\n GATEWAY_API_BIND='192.0.2.2:444'\n",
            "127.0.0.1",
            "GATEWAY_API_BIND=192.0.2.1:443\nGATEWAY_API_BIND=127.0.0.1:444\n",
        ),
        ("# \udce9\n", "127.0.0.1", "# \udce9\nGATEWAY_API_BIND=127.0.0.1:8443\n"),
    ],
)
def test_the_api_listens_at_the_address_of_the_operator_s_choice(
    root: Path, before: str, address: str, after: str
) -> None:
    file = settings(root, before)
    assert ready(root, options(api_address=address))
    assert file.read_text(errors="surrogateescape") == after


def test_an_operator_is_asked_for_the_address_of_the_api_and_the_own_one_is_proposed(root: Path) -> None:
    file, asked = settings(root), list[str]()

    def ask(question: str) -> str:
        asked.append(question)
        return "\n"

    assert set_up(options(), root, "bng7", ask, management="127.0.0.1")
    assert asked == ["Address at which the API listens (all for each of the gateway) [127.0.0.1]: "]
    assert "\nGATEWAY_API_BIND=127.0.0.1:8443\n" in file.read_text()
    # Without a choice, the settings stay.
    before = settings(root).read_text()
    assert set_up(options(), root, "bng7", None, management="127.0.0.1")
    assert file.read_text() == before
