"""Control sockets: the groups of people who may use them."""

from __future__ import annotations

from typing import Annotated

from holdfast.config.schema.field import FieldDoc, Name, Section


class ControlSettings(Section, frozen=True, kw_only=True):
    """Control sockets."""

    operators: Annotated[
        Name | None,
        FieldDoc(
            "Group of this machine whose members may give every command to the daemons here. With this or `readers` "
            "set, nobody else but root and the user of the daemon may change anything. `null` for both: the members of "
            "the daemon's own group are operators."
        ),
    ] = None
    readers: Annotated[
        Name | None,
        FieldDoc(
            "Group of this machine whose members may look at the state of the daemons here (`status`, `get`, "
            "`explain`, `history`), and change nothing."
        ),
    ] = None
