"""Numbers on the wire: whole, not negative, and small enough for the int64 that readers in Go have for them."""

from __future__ import annotations

from typing import Annotated

import msgspec

Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
