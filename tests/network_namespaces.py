"""Nodes in network namespaces of their own, joined by a bridge, whose connections a test can cut.

Everything is done by Debian's iproute2. A cut drops packets without a response, as a broken cable or a firewall does. To drop those of
one direction only, the sender resolves the receiver's address to a hardware address that nobody has.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import permutations

NOBODY = "02:00:00:00:00:01"
"""A hardware address that no interface has."""
INTERFACE = "eth0"


@cache
def why_no_namespaces() -> str:
    """Why this machine cannot create network namespaces; empty if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need the command `ip`: apt-get install iproute2"
    name = f"tw{os.getpid()}-try"
    try:
        with _namespace(name):
            _run("ip", "link", "add", name, "type", "veth", "peer", "name", INTERFACE, "netns", name)
    except subprocess.CalledProcessError as error:
        return f"network namespaces do not work here: {error.stderr.strip()}"
    return ""


@dataclass
class Network:
    """Namespaces and the address of each. The test itself is at `address`, in no namespace."""

    address: str
    addresses: dict[str, str] = field(default_factory=dict)
    """Addresses, by name of the node."""

    @classmethod
    @contextmanager
    def create(cls, names: Sequence[str]) -> Iterator["Network"]:
        """A network with a namespace for each of the nodes, for the block."""
        prefix = f"10.231.{os.getpid() % 250 + 1}"
        network = cls(f"{prefix}.1")
        bridge = network._device("bridge")
        _run("ip", "link", "add", bridge, "type", "bridge")
        try:
            _run("ip", "addr", "add", f"{network.address}/24", "dev", bridge)
            _run("ip", "link", "set", bridge, "up")
            for number, name in enumerate(names, 11):
                network._add(name, f"{prefix}.{number}", bridge)
            yield network
        finally:
            for name in network.addresses:
                _run("ip", "netns", "del", network._device(name))
            _run("ip", "link", "del", bridge)

    def command(self, name: str) -> list[str]:
        """The beginning of a command that runs in the namespace of a node."""
        return ["ip", "netns", "exec", self._device(name)]

    def cut_off(self, name: str) -> None:
        """Drop all packets from and to a node."""
        _run("ip", "link", "set", self._device(name), "down")

    def cut(self, sender: str | None, receiver: str | None) -> None:
        """Drop the packets of one direction between two nodes, or between a node and the server (None)."""
        neighbour = (*self._neighbour(sender, receiver), "lladdr", NOBODY, "nud", "permanent")
        _run(*self._ip(sender), "neigh", "replace", *neighbour)

    def heal(self) -> None:
        """Undo all cuts."""
        for sender, receiver in permutations((None, *self.addresses), 2):
            with suppress(subprocess.CalledProcessError):  # it was not cut
                _run(*self._ip(sender), "neigh", "del", *self._neighbour(sender, receiver))
        for name in self.addresses:
            _run("ip", "link", "set", self._device(name), "up")

    def _add(self, name: str, address: str, bridge: str) -> None:
        device = self._device(name)
        _run("ip", "netns", "add", device)
        self.addresses[name] = address
        _run("ip", "link", "add", device, "type", "veth", "peer", "name", INTERFACE, "netns", device)
        _run("ip", "link", "set", device, "master", bridge, "up")
        _run("ip", "-n", device, "addr", "add", f"{address}/24", "dev", INTERFACE)
        for interface in (INTERFACE, "lo"):
            _run("ip", "-n", device, "link", "set", interface, "up")

    def _device(self, name: str) -> str:
        """The namespace of a node, and its end of the cable on the bridge. At most 15 characters."""
        return f"tw{os.getpid()}-{name}"[:15]

    def _ip(self, name: str | None) -> list[str]:
        return ["ip"] if name is None else ["ip", "-n", self._device(name)]

    def _neighbour(self, sender: str | None, receiver: str | None) -> tuple[str, str, str]:
        address = self.address if receiver is None else self.addresses[receiver]
        return address, "dev", self._device("bridge") if sender is None else INTERFACE


@contextmanager
def _namespace(name: str) -> Iterator[None]:
    _run("ip", "netns", "add", name)
    try:
        yield
    finally:
        _run("ip", "netns", "del", name)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
