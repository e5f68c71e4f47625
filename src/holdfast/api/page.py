"""The dashboard's files: shipped with the package, read once, served without a build step.

The page loads nothing from elsewhere and runs no inline code; the Content-Security-Policy says so to the browser, and
makes it refuse markup from strings, so that hostile names stay text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Annotated

from litestar import Response, get
from litestar.exceptions import NotFoundException
from litestar.handlers import HTTPRouteHandler
from litestar.params import Parameter

_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


def page_handlers() -> Sequence[HTTPRouteHandler]:
    folder = files("holdfast.api") / "dashboard"
    contents = {one.name: one.read_bytes() for one in folder.iterdir() if _kind(one) in _TYPES}

    @get("/", include_in_schema=False, media_type="text/html")
    async def page() -> Response[bytes]:
        return Response(contents["index.html"], media_type="text/html", headers=HEADERS)

    @get("/dashboard/{file:str}", include_in_schema=False)
    async def file_of_page(file: Annotated[str, Parameter(max_length=64)]) -> Response[bytes]:
        if file not in contents:
            raise NotFoundException(detail="the dashboard has no such file")
        kind = file.rpartition(".")[2]
        return Response(contents[file], media_type=_TYPES[kind], headers=HEADERS)

    return [page, file_of_page]


def _kind(file: Traversable) -> str:
    return file.name.rpartition(".")[2]
