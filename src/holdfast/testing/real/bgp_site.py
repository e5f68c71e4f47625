"""A fleet whose routes BIRD or FRR distributes: two hosts on one segment, one on another, two routers as reflectors.

    with network() as net:
        site = BgpSite(net)
        site.start()

    core (etcd, server)
      │ segment A  10.0.0.0/24  fd00::/64             segment B  10.0.1.0/24  fd00:1::/64
      ├── h1 ── w1                                      │
      ├── h2 ── w2                                      ├── h3 ── w3
      ├── rr1  10.0.0.251 ────────────────────────────  ├── 10.0.1.251
      └── rr2  10.0.0.252 ────────────────────────────  └── 10.0.1.252

Every daemon runs with the configuration in `deploy/bgp`, in which only addresses and names of neighbours are replaced.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.inventory.changes import wanted
from holdfast.model.calico.host import HOST, Bgp, Host, HostSpec
from holdfast.testing.real.hosts import REGION, Fleet
from holdfast.testing.real.netns import Namespace, NamespaceNetwork, join
from holdfast.testing.real.processes import Process, Unavailable, run, tool, wait_until

SHIPPED = Path(__file__).parents[4] / "deploy/bgp"
HOSTS = {"h1": "10.0.0.1", "h2": "10.0.0.2", "h3": "10.0.1.3"}
HOSTS6 = {"h1": "fd00::1", "h2": "fd00::2", "h3": "fd00:1::3"}
KEPT_S = 60
"""Seconds for which a restarted zebra keeps the routes that it found, until bgpd has announced them again."""
REFLECTORS = {"rr1": 251, "rr2": 252}


def adapted(name: str, values: Mapping[str, str], neighbours: Mapping[str, str]) -> str:
    """Return a shipped configuration of BIRD with these values and neighbours, as an operator adapts it."""
    text = (SHIPPED / name).read_text().replace("log syslog all;", "log stderr all;")
    for old, new in values.items():
        assert old in text, f"{name} has no {old}"
        text = text.replace(old, new)
    template = re.findall(r"^protocol bgp \w+ from (\w+) {.*}$", text, re.MULTILINE)[0]
    kept = re.sub(r"^protocol bgp \w+ from .*\n", "", text, flags=re.MULTILINE)
    named = [
        f"protocol bgp {name} from {template} {{ neighbor {address} as AS; }}" for name, address in neighbours.items()
    ]
    return "\n".join([kept, *named, ""])


class Bird:
    """BIRD in one namespace."""

    def __init__(self, namespace: Namespace, home: Path, config: str) -> None:
        home.mkdir()
        self._socket = home / "bird.ctl"
        file = home / "bird.conf"
        file.write_text(config)
        tool("birdc")
        words = [tool("bird"), "-f", "-R", "-c", str(file), "-s", str(self._socket), "-P", str(home / "bird.pid")]
        self.process = Process(namespace.command(*words), log=home / "log")

    def start(self) -> None:
        self.process.start()

    def kill(self) -> None:
        if self.process.alive:
            self.process.kill()

    def ask(self, *words: str) -> str:
        """Return BIRD's answer; empty while it does not run."""
        try:
            return run([tool("birdc"), "-s", str(self._socket), *words])
        except RuntimeError:
            return ""

    def established(self) -> int:
        """Number of neighbours with a session."""
        return self.ask("show", "protocols").count("Established")

    def sources(self, prefix: str) -> Sequence[str]:
        """Hosts from which it has a route to that prefix."""
        return re.findall(r"\[(h\d) ", self.ask("show", "route", prefix))


def adapted_frr(name: str, values: Mapping[str, str], neighbours: Mapping[str, str]) -> str:
    """Return a shipped configuration of FRR likewise."""
    text = (SHIPPED / name).read_text()
    for old, new in values.items():
        assert old in text, f"{name} has no {old}"
        text = text.replace(old, new)
    line = re.compile(r"^ neighbor \S+ peer-group (\w+)\n", re.MULTILINE)
    first = line.search(text)
    assert first is not None
    named = "".join(f" neighbor {address} peer-group {first[1]}\n" for address in neighbours.values())
    return text[: first.start()] + named + line.sub("", text[first.start() :])


class Frr:
    """FRR's zebra and bgpd in one namespace."""

    def __init__(self, namespace: Namespace, home: Path, config: str) -> None:
        home.mkdir()
        home.parent.chmod(0o711)  # they run as a user of their own, and must reach their folder
        (home / "frr.conf").write_text(config)
        shutil.chown(home, "frr", "frr")
        self._home = home
        paths = ["-f", str(home / "frr.conf"), "-z", str(home / "zebra.api"), "--vty_socket", str(home)]
        self.processes = {
            name: Process(
                namespace.command(_frr(name), *paths, "-i", str(home / f"{name}.pid"), "-P", "0", *options),
                log=home / f"{name}.log",
            )
            for name, options in (("zebra", ("-r", "-K", str(KEPT_S))), ("bgpd", ()))
        }

    def start(self) -> None:
        self.processes["zebra"].start()
        wait_until((self._home / "zebra.api").exists, "zebra listens")
        self.processes["bgpd"].start()

    def kill(self) -> None:
        for process in self.processes.values():
            if process.alive:
                process.kill()
        for left in self._home.glob("*.api"):
            left.unlink()

    def established(self) -> int:
        """Number of neighbours with a session."""
        try:
            return run([tool("vtysh"), "--vty_socket", str(self._home), "-c", "show bgp neighbors"]).count(
                "BGP state = Established"
            )
        except RuntimeError:
            return 0


def _frr(daemon: str) -> str:
    found = Path("/usr/lib/frr") / daemon
    if not found.exists():
        raise Unavailable(f"{daemon} of FRR is not installed (package frr)")
    return str(found)


class BgpSite:
    def __init__(self, net: NamespaceNetwork, *, frr: bool = False) -> None:
        """`frr` runs FRR everywhere instead of BIRD."""
        self._is_frr = frr
        self.fleet = Fleet(net, routing="bgp", linux="{table: main}" if frr else "{}")
        self._net = net
        self._core = self.fleet.segment.core
        self._core.batch(["link add other type bridge", "link set other up"])
        self.routers = {name: self._router(name, number) for name, number in REFLECTORS.items()}
        self._move_to_the_other_segment()
        for name in ("h1", "h2"):
            self.fleet.segment.hosts[name].batch(_static("10.0.1.0/24", "10.0.0.251", "fd00:1::/64", "fd00::251"))
        self._core.batch(_static("10.0.1.0/24", "10.0.0.251", "fd00:1::/64", "fd00::251"))
        self.daemons = {name: self._host(name) for name in HOSTS}
        self.reflectors = {name: self._reflector(name, number) for name, number in REFLECTORS.items()}

    def start(self) -> None:
        """Start everything; returns before it has converged."""
        for daemon in (*self.reflectors.values(), *self.daemons.values()):
            daemon.start()
        self.fleet.start()
        self.fleet.begin()
        moved = Host.of("h3", HostSpec(bgp=Bgp(f"{HOSTS['h3']}/24", f"{HOSTS6['h3']}/64")))
        self.fleet.change(wanted(HOST, REGION, "h3", moved))

    def end(self) -> None:
        for daemon in (*self.reflectors.values(), *self.daemons.values()):
            daemon.kill()
        self.fleet.end()

    def _router(self, name: str, number: int) -> Namespace:
        """Add a router between the two segments."""
        made = self._net.namespace(name)
        made.forward()
        for device, bridge, four, six in (
            ("eth0", "segment", "10.0.0", "fd00:"),
            ("eth1", "other", "10.0.1", "fd00:1:"),
        ):
            join(made, device, self._core, f"{name}-{device}")
            self._core.batch([f"link set {name}-{device} master {bridge}", f"link set {name}-{device} up"])
            made.bring_up(device, f"{four}.{number}/24", f"{six}:{number}/64")
        return made

    def _move_to_the_other_segment(self) -> None:
        self._core.batch(["link set to-h3 nomaster", "link set to-h3 master other"])
        host = self.fleet.segment.hosts["h3"]
        host.batch(["address flush dev eth0 scope global"])
        host.bring_up("eth0", f"{HOSTS['h3']}/24", f"{HOSTS6['h3']}/64")
        host.batch(_static("10.0.0.0/24", "10.0.1.251", "fd00::/64", "fd00:1::251"))

    def _host(self, name: str) -> Bird | Frr:
        values = {"192.0.2.5": HOSTS[name], "2001:db8:1::5": HOSTS6[name]}
        neighbours = {name: f"10.0.0.{number}" for name, number in REFLECTORS.items()}
        place, home = self.fleet.segment.hosts[name], self._net.home / f"bgp-{name}"
        if not self._is_frr:
            return Bird(place, home, adapted("bird-host.conf", values, neighbours))
        networks = {"10.28.0.0/14": "10.28.0.0/16", "fd28::/16": "fd00:28::/32"}
        return Frr(place, home, adapted_frr("frr-host.conf", values | networks, neighbours))

    def _reflector(self, name: str, number: int) -> Bird | Frr:
        values, place, home = {"192.0.2.251": f"10.0.0.{number}"}, self.routers[name], self._net.home / f"bgp-{name}"
        if not self._is_frr:
            return Bird(place, home, adapted("bird-reflector.conf", values, HOSTS))
        return Frr(place, home, adapted_frr("frr-reflector.conf", values, HOSTS))


def _static(prefix: str, gateway: str, prefix6: str, gateway6: str) -> Sequence[str]:
    return [f"route add {prefix} via {gateway} proto static", f"route add {prefix6} via {gateway6} proto static"]
