"""The API fuzzed from its own OpenAPI document: no answer of 5xx, none that the document lacks, no traceback.

Schemathesis is no dependency of the project: `make fuzz` installs it into an environment of its own.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from holdfast.api.tokens import FILE, TokenFile, TokenRole
from holdfast.model.base.region import Region
from holdfast.model.calico.host import HOST, Bgp, Host, HostSpec
from holdfast.testing.real.etcd import EtcdCluster
from tests.api.daemon import ApiDaemon, put

ST = Path(__file__).parents[2] / ".tools" / "fuzz" / "bin" / "st"
REGION = Region("fuzz")
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
ROLES = ("/readyz", "/leader", "/follower")
"""Their 503 is their meaning."""
ENDLESS = "/api/v1/stream"

pytestmark = pytest.mark.skipif(not ST.exists(), reason="schemathesis is not installed: run make fuzz")


@pytest.mark.parametrize("role", [TokenRole.ADMIN, TokenRole.READ, None])
def test_no_request_makes_the_api_fail(one_etcd: EtcdCluster, tmp_path: Path, role: TokenRole | None) -> None:
    (tmp_path / "state").mkdir(mode=0o700)
    secret = TokenFile(tmp_path / "state" / FILE).create("fuzzer", role) if role else "holdfast_wrong"
    put(one_etcd, HOST.key(REGION, "r12-07"), HOST.encode(Host.of("r12-07", HostSpec(bgp=Bgp("10.9.0.7/24")))))
    settings = {"store.endpoints": one_etcd.endpoints[0], "store.region": REGION.name}
    with ApiDaemon(tmp_path, settings=settings) as daemon:
        run(daemon.port, secret, CHECKS, [f"--exclude-path={path}" for path in (*ROLES, ENDLESS)])
        run(daemon.port, secret, CHECKS.partition(",")[2], [f"--include-path={path}" for path in ROLES])
        assert daemon.get("/healthz")[0] == 200
    assert "Traceback" not in daemon.log()
    assert '"request failed"' not in daemon.log()


def run(port: int, secret: str, checks: str, paths: list[str]) -> None:
    command = [str(ST), "run", f"http://127.0.0.1:{port}/api/v1/openapi.json", f"--checks={checks}", *paths]
    more = ["--phases=examples,coverage,fuzzing", "--max-examples=20", "--no-color", "--suppress-health-check=all"]
    done = subprocess.run(
        [*command, *more, f"--header=Authorization: Bearer {secret}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]
    print(*(line.strip() for line in done.stdout.splitlines() if "generated" in line or "Tested" in line), sep="\n")  # noqa: T201
