"""Frontends for the API: the answers of the balancers here, with rates of traffic and latencies of probes."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.balancer import VIPS_WORKER
from holdfast.cli.common.control_socket import label, roles
from holdfast.runtime.control import Answer, Request, ask

_ANSWER_WITHIN_S = 2.0
_SAMPLES = 100
_SAMPLE_EVERY_S = 3.0
"""One hundred of them are five minutes."""


class FrontendsHere:
    """Asks the balancers of one runtime folder; keeps what rates and sparklines need."""

    def __init__(self, runtime: Path) -> None:
        self._runtime = runtime
        self._counted: dict[tuple[str, str, str], tuple[float, int]] = {}
        self._rates: dict[tuple[str, str, str], float] = {}
        self._latencies: dict[tuple[str, str], deque[float | None]] = {}
        self._sampled = float("-inf")

    async def read(self) -> list[dict[str, Any]]:
        """Return one document for each balancer here, with an error where it does not answer."""
        found = [role for role in roles(self._runtime) if _is_balancer(role)]
        return [await self._balancer(role) for role in found]

    async def table(self, frontend: str) -> dict[str, Any] | str:
        """Return the table of a frontend, or a sentence why there is none."""
        errors = []
        for role in filter(_is_balancer, roles(self._runtime)):
            answer = await self._ask(role, VIPS_WORKER, "buckets", frontend=frontend)
            if not answer.error:
                return {**answer.result, "balancer": label(role)}
            errors.append(answer.error)
        return "; ".join(errors) or "no balancer is running here: ask the API of a balancer"

    async def _balancer(self, role: str) -> dict[str, Any]:
        commands = ("balancer", "traffic", "buckets", "about")
        answers = await asyncio.gather(
            *(self._ask(role, VIPS_WORKER, one) for one in commands), self._ask(role, "prober", "latencies")
        )
        name = label(role)
        if answers[0].error:
            return {"name": name, "error": answers[0].error}
        view, traffic, buckets, about, latencies = (answer.result for answer in answers)
        self._count(name, traffic or [])
        self._sample(name, latencies or {})
        return {
            "name": name,
            "reports_as": about["name"] if about and about["uses_store"] else "",
            **view,
            "traffic": self._traffic(name),
            "buckets": buckets or {},
            "probes": self._probes(name),
        }

    def _count(self, balancer: str, traffic: list[Mapping[str, Any]]) -> None:
        now = time.monotonic()
        for one in traffic:
            key, total = (balancer, one["frontend"], one["backend"]), one["opened"] or one["packets"]
            at, before = self._counted.get(key, (now, total))
            if now > at:
                self._rates[key] = max(0, total - before) / (now - at)
            self._counted[key] = now, total

    def _traffic(self, balancer: str) -> dict[str, dict[str, float]]:
        """Return flows (or packets, where the dataplane counts those) per second, by frontend and backend."""
        found: dict[str, dict[str, float]] = {}
        for (name, frontend, backend), rate in self._rates.items():
            if name == balancer:
                found.setdefault(frontend, {})[backend] = round(rate, 1)
        return found

    def _sample(self, balancer: str, latencies: Mapping[str, float | None]) -> None:
        now = time.monotonic()
        if now - self._sampled < _SAMPLE_EVERY_S:
            return
        self._sampled = now
        gone = {key for key in self._latencies if key[0] == balancer and key[1] not in latencies}
        for key in gone:
            del self._latencies[key]
        for target, took in latencies.items():
            self._latencies.setdefault((balancer, target), deque(maxlen=_SAMPLES)).append(took)

    def _probes(self, balancer: str) -> dict[str, list[float | None]]:
        """Return the latencies in ms of the last five minutes, by probe target; None for one that did not pass."""
        return {target: list(found) for (name, target), found in self._latencies.items() if name == balancer}

    async def _ask(self, role: str, worker: str, command: str, **args: object) -> Answer:
        request = Request("tell", {"do": command, "args": args}, worker)
        return await ask(self._runtime / f"{role}.sock", request, timeout=_ANSWER_WITHIN_S)


def _is_balancer(role: str) -> bool:
    return role.rpartition("/")[2] == "balancer"
