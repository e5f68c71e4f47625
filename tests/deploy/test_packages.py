"""The packages: complete on a bare Debian, agents without SQL, every part listed, sums and signature that hold."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.machine import Machine

BASE_OF_DEBIAN = """
    base-files base-passwd bash coreutils dash dbus debianutils diffutils dpkg findutils grep gzip hostname
    init-system-helpers iproute2 libc-bin login mount ncurses-bin passwd perl-base procps sed systemd-sysv tar
    util-linux
"""
NO_SQL = {"sqlalchemy", "alembic", "psycopg", "psycopg_binary", "litestar", "uvicorn"}


def deb(packages: Path, name: str) -> Path:
    (found,) = packages.glob(f"{name}_*.deb")
    return found


def depends(package: Path) -> list[str]:
    told = subprocess.run(["dpkg-deb", "--field", package, "Depends"], capture_output=True, text=True, check=True)
    return [re.split(r"[ (|]", one.strip())[0] for one in told.stdout.split(",")]


def installed_here(names: list[str]) -> set[str]:
    """These packages and everything that they need, of those that are installed on this machine."""
    shown = subprocess.run(
        ["dpkg-query", "--show", "--showformat", "${Package}\t${Provides}\t${Pre-Depends}, ${Depends}\n"],
        capture_output=True,
        text=True,
        check=True,
    )
    needs: dict[str, list[str]] = {}
    provided: dict[str, str] = {}
    for line in shown.stdout.splitlines():
        name, provides, depended = line.split("\t")
        needs[name] = [re.split(r"[ (:]", choice.strip())[0] for choice in re.split(r"[,|]", depended)]
        provided |= {re.split(r"[ (]", one.strip())[0]: name for one in provides.split(",") if one.strip()}
    found: set[str] = set()
    open_names = list(names)
    while open_names:
        name = open_names.pop()
        name = name if name in needs else provided.get(name, "")
        if name and name not in found:
            found.add(name)
            open_names += needs[name]
    return found


def bare_root(folder: Path, names: set[str]) -> None:
    """A Debian with these packages and nothing else: their files as they are installed here, and dpkg's records."""
    for link in ("bin", "sbin", "lib", "lib64"):
        if Path(f"/{link}").is_symlink():
            (folder / link).symlink_to(f"usr/{link}")
            (folder / "usr" / link).mkdir(parents=True, exist_ok=True)
    listed = subprocess.run(["dpkg-query", "--listfiles", *names], capture_output=True, text=True, check=True).stdout
    unwanted = ("/usr/share/doc", "/usr/share/locale", "/usr/share/man", "/etc/systemd/system")
    paths = sorted({line for line in listed.splitlines() if line.startswith("/") and not line.startswith(unwanted)})
    existing = [path for path in paths if os.path.lexists(path) and path != "/."]
    for path in ("/etc/passwd", "/etc/group", "/etc/ld.so.cache", "/etc/alternatives", "/etc/nsswitch.conf"):
        existing.append(path)
    files = "\0".join(path.lstrip("/") for path in existing)
    archive = f"tar -C / --no-recursion --null -T - -cf - | tar -C '{folder}' -xf - --keep-directory-symlink"
    subprocess.run(["sh", "-c", archive], input=files.encode(), check=True)
    for path in ("proc", "sys", "dev", "run", "tmp", "root", "var/lib/dpkg/info", "var/lib/dpkg/updates"):
        (folder / path).mkdir(parents=True, exist_ok=True)
    stanzas = Path("/var/lib/dpkg/status").read_text(encoding="utf-8").split("\n\n")
    kept = [one for one in stanzas if one.removeprefix("\n").partition("\n")[0].removeprefix("Package: ") in names]
    (folder / "var/lib/dpkg/status").write_text("\n\n".join(kept) + "\n", encoding="utf-8")
    for one in Path("/var/lib/dpkg/info").glob("*.list"):
        if one.stem.partition(":")[0] in names:
            shutil.copy(one, folder / "var/lib/dpkg/info")


@pytest.fixture(scope="module")
def bare(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A booted machine that has what our packages ask for and a base system, and the packages' files in /root."""
    folder = tmp_path_factory.mktemp("bare")
    base = folder / "base"
    base.mkdir(mode=0o755)
    folder.chmod(0o755)
    ours = {"holdfast", "holdfast-server"}
    asked = [name for one in ours for name in depends(deb(packages, one)) if name not in ours]
    bare_root(base, installed_here([*BASE_OF_DEBIAN.split(), *asked]))
    for one in ours:
        shutil.copy(deb(packages, one), base / "root" / f"{one}.deb")
    machine = Machine("bare", folder / "machines", base=base)
    try:
        machine.boot()
        yield machine
    finally:
        machine.stop()
        shutil.rmtree(base)


def test_1_the_agents_package_installs_without_sql_and_starts_nothing(bare: Machine) -> None:
    bare.run("dpkg --install /root/holdfast.deb")
    assert bare.run("holdfast version").stdout.strip()
    modules = bare.run("ls /opt/holdfast/lib/python3*/site-packages").stdout.split()
    assert NO_SQL & set(modules) == set()
    assert bare.run("systemctl is-enabled holdfast-agent holdfast-balancer", check=False).stdout.split() == [
        "disabled",
        "disabled",
    ]
    assert bare.run("stat -c '%U:%G %a' /etc/holdfast /var/lib/holdfast").stdout.splitlines() == [
        "root:holdfast 750",
        "holdfast:holdfast 700",
    ]


def test_2_the_agents_package_refuses_to_be_a_server_with_one_sentence(bare: Machine) -> None:
    done = bare.run("holdfast inventory init", check=False)
    assert done.returncode != 0
    assert "install the package holdfast-server" in done.stderr
    assert done.stderr.strip().count("\n") == 0, done.stderr


def test_3_the_servers_package_adds_to_it_without_a_common_file(bare: Machine) -> None:
    bare.run("dpkg --install /root/holdfast-server.deb")
    assert bare.run("holdfast config check").returncode == 0
    bare.run("/opt/holdfast/bin/python3 -c 'import alembic, litestar, psycopg, sqlalchemy, uvicorn'")


def test_4_every_role_runs_under_its_unit_and_waits_for_the_store(bare: Machine) -> None:
    for role in ("server", "agent", "balancer"):
        bare.run(f"systemctl start holdfast-{role}")  # returns once the daemon has said that it is ready
    for role in ("server", "agent", "balancer"):
        assert bare.run(f"systemctl is-active holdfast-{role}").stdout.strip() == "active"
    users = bare.run("ps -eo user:20,args | grep '[/]opt/holdfast/bin/python3' | cut -d' ' -f1 | sort -u").stdout
    assert users.split() == ["holdfast"]
    status = bare.run("holdfast status", check=False)
    assert status.returncode in (1, 3)
    assert "Traceback" not in status.stdout + status.stderr


def test_5_the_folder_of_the_journal_is_there_after_a_stop(bare: Machine) -> None:
    """N18, by systemd itself."""
    bare.run("systemctl stop holdfast-server holdfast-balancer holdfast-agent")
    assert bare.run("ls /run/holdfast/agent.journal").stdout


def test_6_an_upgrade_restarts_what_runs_and_keeps_the_configuration(bare: Machine) -> None:
    bare.run("systemctl start holdfast-agent; echo 'log: {level: debug}' >/etc/holdfast/holdfast.yaml")
    before = bare.run("systemctl show -P MainPID holdfast-agent").stdout
    bare.run("dpkg --force-confold --install /root/holdfast.deb")
    assert bare.run("systemctl show -P MainPID holdfast-agent").stdout != before
    assert bare.run("cat /etc/holdfast/holdfast.yaml").stdout == "log: {level: debug}\n"
    assert bare.run("systemctl is-active holdfast-server", check=False).stdout.strip() == "inactive"


def test_7_a_removal_stops_the_daemons_and_keeps_their_state(bare: Machine) -> None:
    bare.run("touch /var/lib/holdfast/inventory.db; dpkg --purge holdfast-server holdfast")
    assert bare.run("systemctl is-active holdfast-agent", check=False).stdout.strip() != "active"
    assert bare.run("ls /opt", check=False).stdout.split() == []
    bare.run("test -e /var/lib/holdfast/inventory.db")


def test_the_parts_list_names_what_is_in_the_package(packages: Path, tmp_path: Path) -> None:
    subprocess.run(["dpkg-deb", "--extract", deb(packages, "holdfast"), tmp_path], check=True)
    (site,) = (tmp_path / "opt/holdfast/lib").glob("python3*/site-packages")
    metadata = [(path / "METADATA").read_text(encoding="utf-8") for path in site.glob("*.dist-info")]
    installed = {
        (match["name"].lower().replace("_", "-"), match["version"])
        for text in metadata
        if (match := re.search(r"^Name: (?P<name>\S+)$.*?^Version: (?P<version>\S+)$", text, re.MULTILINE | re.DOTALL))
    }
    bill = json.loads((tmp_path / "usr/share/doc/holdfast/sbom.cdx.json").read_text())
    own = bill["metadata"]["component"]
    assert {(part["name"], part["version"]) for part in [own, *bill["components"]]} == installed
    assert all(part["externalReferences"][0]["hashes"] for part in bill["components"])


def test_the_sums_cover_every_file(packages: Path) -> None:
    subprocess.run(["sha256sum", "--quiet", "--strict", "--check", "SHA256SUMS"], cwd=packages, check=True)
    named = {line.split("  ")[1] for line in (packages / "SHA256SUMS").read_text().splitlines()}
    assert named == {path.name for path in packages.iterdir()} - {"SHA256SUMS", "SHA256SUMS.asc"}


@pytest.mark.skipif(shutil.which("gpg") is None, reason="needs gpg")
def test_the_signature_holds_and_a_changed_sum_breaks_it(packages: Path, tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="gpg", dir="/tmp") as home:  # its sockets need a short path
        environment = {**os.environ, "GNUPGHOME": home}

        def gpg(*arguments: str | Path) -> int:
            done = subprocess.run(["gpg", "--batch", *arguments], env=environment, capture_output=True, check=False)
            return done.returncode

        signature, sums = packages / "SHA256SUMS.asc", packages / "SHA256SUMS"
        assert gpg("--verify", signature, sums) != 0, "a key that nobody has imported proves nothing"
        assert gpg("--import", packages.with_suffix(".asc")) == 0
        assert gpg("--verify", signature, sums) == 0
        changed = tmp_path / "SHA256SUMS"
        changed.write_text(sums.read_text().replace("0", "1", 1))
        assert gpg("--verify", signature, changed) != 0
        subprocess.run(["gpgconf", "--kill", "all"], env=environment, check=True)
