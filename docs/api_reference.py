"""Reference of the HTTP API, generated from the OpenAPI document that the API itself serves.

`python -m docs.api_reference` prints it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from holdfast.api.app import create_app
from holdfast.api.sessions import Sessions
from holdfast.api.stream.feed import EventFeed
from holdfast.api.tokens import TokenFile

_HEAD = """\
# API reference

What a daemon with `http.api` serves; [HTTP](../http.md) says who may ask, and how. `/api/v1/openapi.json` is the same
as an OpenAPI document. Errors are `application/problem+json`.
"""


def openapi() -> dict[str, Any]:
    """The document of an API that nobody asks."""
    nothing = cast("Any", object())
    app = create_app(nothing, EventFeed(nothing), Sessions(TokenFile(Path("/nonexistent"))))
    return app.openapi_schema.to_schema()


def reference() -> str:
    """The whole page."""
    return "\n".join(_page(openapi())) + "\n"


def _page(document: dict[str, Any]) -> Iterator[str]:
    yield _HEAD
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield f"## `{method.upper()} {path}`"
            yield ""
            yield f"{operation['summary']}."
            yield ""
            yield from _inputs(document, operation)
            yield from _answers(operation)


def _inputs(document: dict[str, Any], operation: dict[str, Any]) -> Iterator[str]:
    rows = [
        (one["name"], f"in the {one['in']}", one["schema"], one["required"]) for one in operation.get("parameters", [])
    ]
    for content in operation.get("requestBody", {}).get("content", {}).values():
        reference = content["schema"]["allOf"][0]["$ref"]
        body = document["components"]["schemas"][reference.rpartition("/")[2]]
        wanted = body.get("required", [])
        rows += [(name, "in the body", schema, name in wanted) for name, schema in body["properties"].items()]
    for name, where, schema, required in rows:
        yield f"- `{name}` {where}: {_type(schema)}{', required' if required else ''}"
    if rows:
        yield ""


def _answers(operation: dict[str, Any]) -> Iterator[str]:
    """The example of a good answer, and the other statuses."""
    for content in operation["responses"].get("200", {}).get("content", {}).values():
        value = next(iter(content["examples"].values()))["value"]
        shown = value.rstrip() if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
        yield from (f"    {line}".rstrip() for line in shown.splitlines())
        yield ""
    others = [status for status in operation["responses"] if not status.startswith("2")]
    yield f"Other answers: {', '.join(others)}."
    yield ""


def _type(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if "oneOf" in schema:
        return " or ".join(_type(one) for one in schema["oneOf"])
    return str(schema.get("type", "any"))


if __name__ == "__main__":
    sys.stdout.write(reference())
