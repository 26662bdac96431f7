"""Hosts that are namespaces: each has its own network interface, name, loopback and /srv, and its own processes."""

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from waiting import LIMIT

HERE = Path(__file__).parent
UNITS = HERE.parents[2] / "deploy" / "systemd"


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def possible():
    """Whether namespaces can be made here: as root, with the needed rights."""
    name = f"fedeas-try-{os.getpid()}"
    try:
        ip("netns", "add", name)
        ip("-n", name, "link", "add", "try0", "type", "bridge")
        return subprocess.run(["unshare", "--mount", "true"], check=False).returncode == 0
    except (OSError, subprocess.CalledProcessError):
        return False
    finally:
        subprocess.run(["sh", "-c", f"ip netns del {name}"], check=False, capture_output=True)


def _before(folder):
    """The search path of Python modules, with this folder first."""
    return os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))


class Hosts:
    """Hosts on one switch; the first one is also called server.example.org."""

    def __init__(self, folder, names):
        self.folder, self.names = folder, names
        self.addresses = {name: f"192.0.2.{10 * (index + 1)}" for index, name in enumerate(names)}
        self.switch = self._space("switch")

    def _space(self, name):
        return f"fedeas{os.getpid()}-{name}"

    def _port(self, name):
        """The switch's end of a host's cable."""
        return f"port{self.names.index(name)}"

    def up(self):
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "switch0", "type", "bridge")
        ip("-n", self.switch, "link", "set", "switch0", "up")
        known = "".join(f"{address} {name}\n" for name, address in self.addresses.items())
        known = f"127.0.0.1 localhost\n{known}{self.addresses[self.names[0]]} server.example.org\n"
        for name in self.names:
            self._connect(name, self._port(name))
            home = self.folder / name / "srv" / "fedeas"
            (home / "keys").mkdir(parents=True)
            (home / "venv").symlink_to(sys.prefix)
            (home / "source").symlink_to(HERE.parents[2])
            (self.folder / name / "hosts").write_text(known)

    def _connect(self, name, port):
        space = self._space(name)
        ip("netns", "add", space)
        ip("-n", space, "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", self.switch)
        ip("-n", self.switch, "link", "set", port, "master", "switch0", "up")
        ip("-n", space, "address", "add", f"{self.addresses[name]}/24", "dev", "eth0")
        ip("-n", space, "link", "set", "eth0", "up")
        ip("-n", space, "link", "set", "lo", "up")

    def down(self):
        for name in self.names:
            for unit in (self.folder / name / "srv" / "running").glob("*"):
                self.run(name, f"systemctl stop {unit.name}")
            subprocess.run(["ip", "netns", "del", self._space(name)], check=False)
        subprocess.run(["ip", "netns", "del", self.switch], check=False)

    def run(self, name, command):
        """Run a command on a host; return its exit code and what it printed."""
        path = f"{HERE / 'programs'}:/srv/fedeas/venv/bin:{os.environ['PATH']}"
        known = {"PATH": path, "UNITS": str(UNITS), "HOSTS": str(self.folder), "FEDEAS_CACHE": "/srv/fedeas/cache",
                 "FLWR_HOME": "/srv/fedeas/flower", "PYTHONPATH": _before("/srv/fedeas/source")}  # fmt: skip
        enter = ["ip", "netns", "exec", self._space(name), "unshare", "--mount", str(HERE / "enter")]
        done = subprocess.run(
            [*enter, str(self.folder / name), command], env={**os.environ, **known}, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=LIMIT,
        )  # fmt: skip
        return done.returncode, done.stdout

    @contextmanager
    def cut_off(self, name):
        """Unplug a host's network cable during a ``with`` block."""
        ip("-n", self.switch, "link", "set", self._port(name), "down")
        try:
            yield
        finally:
            ip("-n", self.switch, "link", "set", self._port(name), "up")

    def home(self, name):
        """The host's /srv/fedeas, as it is seen from outside."""
        return self.folder / name / "srv" / "fedeas"


@contextmanager
def connected(folder, names):
    hosts = Hosts(folder, names)
    try:
        hosts.up()
        yield hosts
    finally:
        hosts.down()
