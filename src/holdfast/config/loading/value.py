"""One value: from what stands in a file, a variable or a flag to what the field asks for.

Everything wrong with the value is noted, item by item. What comes out went through the field's own reader, its bounds
and msgspec, in this order, so that the first sentence an operator sees is the most helpful one.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.config.loading.yaml import Fault, ListNode, Node, ScalarNode, TableNode, UnusableNode, parse
from holdfast.config.schema.field import Leaf
from holdfast.config.schema.scalars import Unfit


class Unsound:
    """The mark of a value that could not be read."""


UNSOUND = Unsound()


def node_of(leaf: Leaf, text: str) -> tuple[Node, tuple[Fault, ...]]:
    """What a variable or flag says. A list is written `a, b` or `[a, b]`; everything else stands for itself."""
    if not leaf.many or not text.strip():
        return ScalarNode(text), ()
    if not text.lstrip().startswith("["):
        return ListNode(tuple(ScalarNode(item.strip()) for item in text.split(","))), ()
    document = parse(text)
    return document.root or ScalarNode(text), document.faults


def read(leaf: Leaf, node: Node, faults: list[Fault]) -> Any:
    """The value for the field, or `UNSOUND` with the reasons added to `faults`. Paths in them are below the field."""
    try:
        value = _value(leaf, node, faults)
        if value is UNSOUND or value is None:
            return value
        check_bounds(leaf, value)
        return msgspec.convert(value, leaf.type)
    except Unfit as unfit:
        faults.append(Fault("", node.mark, str(unfit)))
    except msgspec.ValidationError as error:
        faults.append(Fault("", node.mark, f"does not fit: {error}"))
    return UNSOUND


def _value(leaf: Leaf, node: Node, faults: list[Fault]) -> object:
    if isinstance(node, UnusableNode):
        return UNSOUND
    if isinstance(node, ScalarNode) and node.is_empty:
        none = ", write null for none" if leaf.optional else ""
        rest = "" if leaf.required else f", or remove it to have the default ({leaf.show(leaf.default)})"
        raise Unfit(f"has no value: give it one{none}{rest}")
    if isinstance(node, ScalarNode) and node.is_null and leaf.optional:
        return None
    return _items(leaf, node, faults) if leaf.many else _scalar(leaf, node)


def _scalar(leaf: Leaf, node: Node) -> object:
    if isinstance(node, UnusableNode):
        return UNSOUND
    if isinstance(node, TableNode):
        raise Unfit(f"is a group of keys: write one {leaf.kind.noun}")
    if isinstance(node, ListNode):
        raise Unfit(f"is a list: write one {leaf.kind.noun}")
    if node.is_null:
        raise Unfit("cannot be null: give it a value, or remove it to have the default")
    if not node.text:
        raise Unfit("is an empty text: give it a value, or remove it to have the default")
    return leaf.kind.read(node.text)


def _items(leaf: Leaf, node: Node, faults: list[Fault]) -> object:
    if isinstance(node, ScalarNode) and leaf.about.alone:
        return (_scalar(leaf, node),)
    if not isinstance(node, ListNode):
        raise Unfit(f"is not a list: write {leaf.show(leaf.default)} or the like")
    values: list[object] = []
    for index, item in enumerate(node.nodes):
        try:
            values.append(_scalar(leaf, item))
        except Unfit as unfit:
            faults.append(Fault(f"[{index}]", item.mark, str(unfit)))
    sound = len(values) == len(node.nodes) and UNSOUND not in values
    return tuple(values) if sound else UNSOUND


def check_bounds(leaf: Leaf, value: Any) -> None:
    """Raises `Unfit` for a value outside the field's bounds, with the consequence that it would have."""
    about, shown = leaf.about, leaf.show(value)
    if about.least is not None and value < about.least:
        raise Unfit(f"is {shown}, less than {leaf.show(about.least)}: {about.small}")
    if about.most is not None and value > about.most:
        raise Unfit(f"is {shown}, more than {leaf.show(about.most)}: {about.big}")
