"""A machine with a systemd of its own, made of namespaces: what a package installs runs there as it will run for real.

Its files are those of this machine, or of a folder, with a layer in memory above them: what is written is gone with the
machine. Services of this machine do not start in it, and nothing in it changes what all machines on this kernel share.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from holdfast.runtime.daemon.process import dying_with_us

DEADLINE_S = 180
"""For what takes a second on an idle machine."""

_CGROUP1 = Path("/sys/fs/cgroup/systemd")
_CGROUP2 = Path("/sys/fs/cgroup")
_SHARED = ("systemd-sysctl.service", "systemd-modules-load.service", "systemd-remount-fs.service", "modprobe@.service")
_SHARED_MOUNTS = ("sys-kernel-debug.mount", "sys-kernel-tracing.mount", "dev-hugepages.mount", "dev-mqueue.mount")
_NEEDLESS = ("systemd-udevd.service", "systemd-udevd-kernel.socket", "systemd-udevd-control.socket", "tmp.mount")

_BOOT = """
set -e
root=$1 name=$2 kind=$3
hostname "$name"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
if [ "$kind" = cgroup2 ]; then
    mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
else
    mount -t tmpfs tmpfs "$root/sys/fs/cgroup"
    mkdir "$root/sys/fs/cgroup/systemd"
    mount -t cgroup -o none,name=systemd cgroup "$root/sys/fs/cgroup/systemd"
fi
mount -t tmpfs tmpfs "$root/dev"
for device in null zero full random urandom tty; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
touch "$root/dev/console"
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t tmpfs tmpfs "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
ip link set lo up
cd "$root"
mkdir .old
pivot_root . .old
umount -l /.old
rmdir /.old
exec env -i container=holdfast PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system --unit=basic.target
"""


@functools.cache
def why_not() -> str:
    """Why no machine can be made here; empty if one can."""
    if os.getuid() != 0:
        return "needs root"
    if not Path("/lib/systemd/systemd").exists() or shutil.which("dpkg-deb") is None:
        return "needs systemd on a Debian family"
    if not os.access(_cgroup(), os.W_OK):
        return "needs a writable control group"
    tried = subprocess.run(["unshare", "--cgroup", "--pid", "--mount", "--net", "--fork", "true"], check=False)
    return "needs namespaces" if tried.returncode else ""


def _cgroup() -> Path:
    return _CGROUP1 if _CGROUP1.is_dir() else _CGROUP2


class Machine:
    """One machine. `boot` returns once its systemd has started; `stop` ends everything in it and removes its files."""

    def __init__(self, name: str, folder: Path, *, base: Path = Path("/"), hidden: tuple[Path, ...] = ()) -> None:
        self.name = name
        self._memory = folder / name
        self.root = self._memory / "root"
        self._base = base
        self._hidden = hidden
        self._group = _cgroup() / f"holdfast-{os.getpid()}-{name}"
        self._started: subprocess.Popen[bytes] | None = None

    def boot(self) -> None:
        self._lay_out()
        self._group.mkdir()
        kind = "cgroup2" if _cgroup() == _CGROUP2 else "cgroup"
        join = f'echo 0 >"{self._group}/cgroup.procs"; exec "$@"'
        unshare = ["unshare", "--cgroup", "--pid", "--mount", "--net", "--uts", "--ipc", "--fork", "--kill-child"]
        command = ["sh", "-c", join, "sh", *unshare, "sh", "-c", _BOOT, "boot", str(self.root), self.name, kind]
        self._started = subprocess.Popen(dying_with_us(command), stdin=subprocess.DEVNULL)
        self._wait_for_systemd()

    def _lay_out(self) -> None:
        self._memory.mkdir(parents=True)
        _run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(self._memory))
        for name in ("upper", "work", "root"):
            (self._memory / name).mkdir()
        for hidden in self._hidden:  # a device 0:0 in the upper layer hides what is below
            place = self._memory / "upper" / hidden.relative_to("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            os.mknod(place, stat.S_IFCHR)
        layers = f"lowerdir={self._base},upperdir={self._memory}/upper,workdir={self._memory}/work"
        _run("mount", "-t", "overlay", "overlay", "-o", layers, str(self.root))
        units = self.root / "etc/systemd/system"
        units.mkdir(parents=True, exist_ok=True)
        for wants in units.glob("*.wants"):
            shutil.rmtree(wants)
        for unit in (*_SHARED, *_SHARED_MOUNTS, *_NEEDLESS):
            (units / unit).unlink(missing_ok=True)
            (units / unit).symlink_to("/dev/null")
        (self.root / "etc/machine-id").write_text("")
        (self.root / "etc/hostname").write_text(f"{self.name}\n")

    def _wait_for_systemd(self) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            assert self._started is not None
            assert self._started.poll() is None, f"{self.name} did not boot"
            with contextlib.suppress(ValueError, IndexError, FileNotFoundError):
                done = self.run("systemctl is-system-running --wait", check=False)
                if done.stdout.strip() in ("running", "degraded"):
                    return
            time.sleep(0.2)
        raise AssertionError(f"systemd of {self.name} has not started within {DEADLINE_S} s")

    @property
    def pid(self) -> int:
        """The process that is number one in it."""
        assert self._started is not None
        children = Path(f"/proc/{self._started.pid}/task/{self._started.pid}/children").read_text().split()
        return int(children[0])

    def run(self, script: str, *, check: bool = True, within_s: float = DEADLINE_S) -> subprocess.CompletedProcess[str]:
        """Run a script as root there, in a login's environment."""
        environment = ["env", "-i", "HOME=/root", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
        command = ["nsenter", "-t", str(self.pid), "-a", "--", *environment, "bash", "-euo", "pipefail", "-c", script]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=within_s, stdin=subprocess.DEVNULL
        )
        if check and done.returncode:
            raise AssertionError(f"on {self.name}, exit {done.returncode}:\n{script}\n{done.stdout}\n{done.stderr}")
        return done

    def wait(self, script: str, wanted: str = "", *, within_s: float = DEADLINE_S) -> str:
        """Run a script until it succeeds with that text in its output."""
        deadline = time.monotonic() + within_s
        while True:
            done = self.run(script, check=False)
            if done.returncode == 0 and wanted in done.stdout:
                return done.stdout
            told = f"{done.stdout}\n{done.stderr}"
            assert time.monotonic() < deadline, f"on {self.name}, not within {within_s} s: {script}\n{told}"
            time.sleep(0.3)

    def stop(self) -> None:
        if self._started is not None and self._started.poll() is None:
            with contextlib.suppress(ProcessLookupError, IndexError):
                os.kill(self.pid, signal.SIGKILL)
            self._started.kill()
            self._started.wait()
        subprocess.run(["umount", "-l", str(self.root)], check=False, capture_output=True)
        subprocess.run(["umount", "-l", str(self._memory)], check=False, capture_output=True)
        for folder, _, _ in os.walk(self._group, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()


@contextlib.contextmanager
def cabled(*machines: Machine) -> Iterator[None]:
    """Put eth0 of booted machines on one switch: the first has 192.0.2.11, the next 192.0.2.12."""
    switch = f"holdfast-{os.getpid()}"
    _run("ip", "netns", "add", switch)
    try:
        _run("ip", "-n", switch, "link", "add", "br0", "type", "bridge")
        _run("ip", "-n", switch, "link", "set", "br0", "up")
        for number, machine in enumerate(machines, 1):
            pid = str(machine.pid)
            port = f"port{number}"
            peer = ("peer", "name", "eth0", "netns", pid)
            _run("ip", "link", "add", port, "netns", switch, "type", "veth", *peer)
            _run("ip", "-n", switch, "link", "set", port, "master", "br0", "up")
            machine.run(f"ip address add 192.0.2.{10 + number}/24 dev eth0; ip link set eth0 up")
        yield
    finally:
        _run("ip", "netns", "del", switch)


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
