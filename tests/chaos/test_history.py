"""The history checker finds what it promises to find."""

from __future__ import annotations

import http.server
import json
import threading
from typing import ClassVar

from holdfast.lab.fleet.fenced_writer import WriterEntry
from holdfast.lab.fleet.history_check import (
    AcceptedWrite,
    History,
    LeaderChange,
    read_events,
    violations,
    writes_after,
)


def write(revision: int, server: str, term: int, number: int) -> AcceptedWrite:
    return AcceptedWrite(revision, WriterEntry(server, 1, term, number))


def test_two_terms_one_after_the_other_are_fine() -> None:
    assert not violations(
        [
            LeaderChange(3, 3),
            write(4, "a", 3, 1),
            LeaderChange(5, 3),
            write(6, "a", 3, 2),
            LeaderChange(7, 0),
            LeaderChange(8, 8),
            write(9, "b", 8, 1),
        ]
    )


def test_a_write_of_an_old_term_after_the_new_one_began_is_found() -> None:
    found = violations(
        [LeaderChange(3, 3), write(4, "a", 3, 1), LeaderChange(7, 0), LeaderChange(8, 8), write(9, "a", 3, 2)]
    )
    assert found == ["revision 9: a wrote under term 3, but term 8 led"]


def test_a_write_without_a_leader_is_found() -> None:
    assert violations([LeaderChange(3, 3), LeaderChange(4, 0), write(5, "a", 3, 1)]) == [
        "revision 5: a wrote under term 3, but there was no leader"
    ]


def test_two_writers_of_one_term_are_found() -> None:
    assert violations([LeaderChange(3, 3), write(4, "a", 3, 1), write(5, "b", 3, 1)]) == [
        "revision 5: b wrote under term 3, which is a's"
    ]


def test_a_term_that_does_not_grow_is_found() -> None:
    assert violations([LeaderChange(8, 8), LeaderChange(9, 0), LeaderChange(10, 3)]) == [
        "revision 10: term 3 began after term 8"
    ]


def test_a_write_that_was_put_twice_is_found() -> None:
    assert violations([LeaderChange(3, 3), write(4, "a", 3, 7), write(5, "a", 3, 7)]) == [
        "revision 5: a wrote under term 3 its number 7 again"
    ]


def test_writes_after_a_revision_are_counted_per_server() -> None:
    history: History = [
        LeaderChange(3, 3),
        write(4, "a", 3, 1),
        write(5, "a", 3, 2),
        LeaderChange(6, 6),
        write(7, "b", 6, 1),
    ]
    assert (writes_after(history, 4, "a"), writes_after(history, 4, "b")) == (1, 1)


class Electing(http.server.BaseHTTPRequestHandler):
    """A member that has no leader when it is asked to write, and has one at the second attempt."""

    asked: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(self.path)
        if self.asked == ["/v3/kv/put"]:
            self._answer(503, {"error": "etcdserver: leader changed", "code": 14})
        elif self.path == "/v3/kv/put":
            self._answer(200, {"header": {"revision": "7"}})
        else:
            marker = {"key": request["create_request"]["key"], "mod_revision": "6"}
            last = {"key": "cC9sYWIvbWFya2Vy", "mod_revision": "7"}
            self._answer(200, {"result": {"events": [{"kv": marker}, {"kv": last}]}})

    def _answer(self, status: int, body: object) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode() + b"\n")

    def log_message(self, *_: object) -> None:
        """The test's output is not the place for it."""


def test_the_history_of_a_cluster_that_elects_a_leader_is_read_once_it_has_one() -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Electing) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            events = list(read_events(f"http://127.0.0.1:{server.server_address[1]}", b"p/"))
        finally:
            server.shutdown()
            serving.join()
    assert [key for key, _ in events] == [b"p/"]
    assert Electing.asked == ["/v3/kv/put", "/v3/kv/put", "/v3/watch"]
