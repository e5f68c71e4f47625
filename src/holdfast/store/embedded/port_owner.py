"""Who listens on a TCP port of this machine, as the kernel tells it in /proc."""

from __future__ import annotations

from pathlib import Path

_LISTEN = "0A"


def listening_pids(port: int, proc: Path = Path("/proc")) -> frozenset[int] | None:
    """The processes that listen on `port`, as far as we may see them; None when nobody listens."""
    inodes = _inodes(port, proc)
    if not inodes:
        return None
    return frozenset(int(folder.name) for folder in proc.iterdir() if folder.name.isdigit() and _holds(folder, inodes))


def _inodes(port: int, proc: Path) -> frozenset[str]:
    found = set()
    for table in ("tcp", "tcp6"):
        try:
            rows = (proc / "net" / table).read_text().splitlines()[1:]
        except FileNotFoundError:
            continue  # a kernel without IPv6
        for row in rows:
            fields = row.split()
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(f"socket:[{fields[9]}]")
    return frozenset(found)


def _holds(process: Path, sockets: frozenset[str]) -> bool:
    try:
        return any(str(descriptor.readlink()) in sockets for descriptor in (process / "fd").iterdir())
    except OSError:
        return False  # gone meanwhile, or not ours to look at
