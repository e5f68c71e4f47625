"""Manifests for `holdfast apply`: objects or lists of them, in JSON or one or several documents of YAML. Every error
names its line, and all errors come at once.

    - kind: host
      name: r12-01
      spec: {bgp: {ipv4Address: 192.0.2.7/24}}
    - kind: endpoint
      network: red
      spec: {node: r12-01, workload: web, endpoint: eth0, interfaceName: tap-web, ipNetworks: [10.28.0.7]}
    - kind: migration
      name: holdfast-web-eth0
      spec: {to: r12-02}

Health checks, backends and frontends have the fields of a balancer's own file. The field decides the type of a scalar,
never its looks. Unknown fields are refused: a misspelt one would be lost in silence. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import inspect

from holdfast.config.loading.section import Notes, read_section, unfit
from holdfast.config.loading.yaml import Fault, ListNode, Node, ScalarNode, TableNode, parse
from holdfast.config.schema.scalars import closest
from holdfast.inventory.changes import WantedObject, wanted
from holdfast.inventory.kinds import KINDS, SERVING, Thing, name_of
from holdfast.model.base.kind import Kind
from holdfast.model.base.name import NameRefused, join
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint, EndpointName, EndpointSpec, read_name
from holdfast.model.calico.host import HOST, REGION_LABEL, Host, HostSpec
from holdfast.model.calico.migration import MIGRATION, Migration
from holdfast.model.calico.subnet import Subnet
from holdfast.model.fleet.network import NETWORK, NETWORK_LABEL, Network


class MigrationTarget(msgspec.Struct, frozen=True):
    """The target of a migration; its source is the host of its endpoint."""

    to: str


_FIELDS = ("kind", "name", "labels", "network", "spec")
_SPECS: Mapping[str, type[Any]] = {
    "host": HostSpec,
    "network": Network,
    "endpoint": EndpointSpec,
    "subnet": Subnet,
    "migration": MigrationTarget,
}


class ManifestRefused(Exception):
    """The file cannot be applied. One line per problem, each with its place."""


class _Wrong(Exception):
    """A problem of one object: the rest of a sentence after its place."""


def read(text: str, file: str, region: Region) -> Sequence[WantedObject]:
    """Read the requests of a file, in its order. Raises `ManifestRefused` with all problems."""
    document = parse(text, several=True)
    faults = list(document.faults)
    found: list[WantedObject] = []
    lines: dict[tuple[str, str], int] = {}
    for node in _objects(document.root):
        try:
            for request in _requests(node, region, faults):
                first = lines.setdefault((request.kind.name, request.name), node.mark.line)
                if first != node.mark.line:
                    raise _Wrong(f"is {request.kind.name} {request.name} again, first on line {first}: remove one")
                found.append(request)
        except (_Wrong, ValueError) as error:
            faults.append(Fault("", node.mark, str(error)))
    if not found and not faults:
        raise ManifestRefused(f"{file} names no object: see holdfast apply --help for its form")
    if faults:
        raise ManifestRefused("\n".join(f"{file}:{fault.mark.line}: {_message(fault)}" for fault in faults))
    return found


def _message(fault: Fault) -> str:
    return f"{fault.path} {fault.sentence}" if fault.path else fault.sentence


def _requests(node: Node, region: Region, faults: list[Fault]) -> Sequence[WantedObject]:
    given = _plain(node)
    kind = _kind(given)
    if kind in SERVING:
        return _served(kind, node, region, faults)
    assert isinstance(node, TableNode)
    spec = next((value for key, value in node.entries if key.text == "spec"), None)
    faults += unknown_fields(spec, inspect.type_info(_SPECS[kind.name]))
    return [_wanted(kind, given, region)]


def unknown_fields(node: Node | None, wanted_type: inspect.Type) -> Iterator[Fault]:
    """Yield a fault for each field that its object does not have, however deep. Pure."""
    match node, wanted_type:
        case _, inspect.UnionType():
            for one in wanted_type.types:
                yield from unknown_fields(node, one)
        case TableNode(), inspect.StructType():
            known = {field.encode_name: field.type for field in wanted_type.fields}
            for key, value in node.entries:
                if key.text in known:
                    yield from unknown_fields(value, known[key.text])
                else:
                    yield Fault("", key.mark, f"has an unknown field {key.text}{closest(key.text, list(known))}")
        case TableNode(), inspect.DictType():
            for _, value in node.entries:
                yield from unknown_fields(value, wanted_type.value_type)
        case ListNode(), inspect.VarTupleType() | inspect.ListType():
            for each in node.nodes:
                yield from unknown_fields(each, wanted_type.item_type)


def _objects(documents: Node | None) -> Iterator[Node]:
    """Yield the objects of all documents; a list is flattened, and an empty document has none."""
    for root in documents.nodes if isinstance(documents, ListNode) else ():
        if isinstance(root, ListNode):
            yield from root.nodes
        elif not (isinstance(root, ScalarNode) and root.is_empty):
            yield root


def _plain(node: Node) -> Any:
    match node:
        case ScalarNode():
            return None if node.is_null or node.is_empty else node.text
        case ListNode():
            return [_plain(one) for one in node.nodes]
        case TableNode():
            return {key.text: _plain(value) for key, value in node.entries}
    return None


def _kind(given: Any) -> Kind[Any, Any]:
    if not isinstance(given, dict):
        raise _Wrong("is not an object: write kind, name and spec")
    _refuse_unknown(given, _FIELDS)
    kind = next((one for one in KINDS if given.get("kind") in (one.name, one.plural)), None)
    if kind is None:
        raise _Wrong(f"names no kind of the inventory: write kind: {', '.join(one.name for one in KINDS)}")
    if kind is not ENDPOINT and given.get("network"):
        raise _Wrong(f"has a network, which a {kind.name} is not on")
    if kind not in (HOST, ENDPOINT) and given.get("labels"):
        raise _Wrong(f"has labels, which a {kind.name} does not carry")
    return kind


def _wanted(kind: Kind[Any, Any], given: Any, region: Region) -> WantedObject:
    spec = given.get("spec") or {}
    if not isinstance(spec, dict):
        raise _Wrong("has a spec that is not a mapping")
    name, thing = _thing(kind, given, spec, region)
    return wanted(kind, region, name, thing)


def _thing(kind: Kind[Any, Any], given: dict[str, Any], spec: dict[str, Any], region: Region) -> tuple[Any, Thing]:
    if kind is ENDPOINT:
        endpoint = _convert({"orchestrator": "holdfast", **spec}, EndpointSpec)
        if given.get("name") not in (None, called := name_of(endpoint.name)):
            raise _Wrong(f"is endpoint {called} by its spec, and has another name: remove the name")
        return endpoint.name, Endpoint.of(region, endpoint, labels=_labels(given, region))
    name = _name(kind, given)
    if kind is HOST:
        return name, Host.of(name, _convert(spec, HostSpec), labels=_labels(given, region))
    if kind is MIGRATION:
        target = _endpoint_on(name, _convert(spec, MigrationTarget).to)
        return target, Migration.of(region, target, target.node)
    if kind is NETWORK:
        return name, _convert(spec, Network)
    return name, _convert({"network_id": name, **spec}, Subnet)


def _endpoint_on(name: str, to: str) -> EndpointName:
    """The key name of an endpoint on another host, from its name in the inventory."""
    host = join((to,))
    try:
        return read_name(f"{host}-{name}")
    except NameRefused as error:
        raise _Wrong(
            f"is migration {name}, which is not the name of an endpoint: write one, such as holdfast-web-eth0; hyphens "
            "inside a part are doubled, such as holdfast-cache--01-eth0"
        ) from error


def _labels(given: dict[str, Any], region: Region) -> Mapping[str, str]:
    """The labels of a host or an endpoint, including its network."""
    labels: dict[str, str] = _convert(given.get("labels") or {}, dict[str, str], "labels")
    if labels.get(REGION_LABEL, region.name) != region.name:
        raise _Wrong(f"has the label {REGION_LABEL}, which follows from store.region: remove it")
    if given.get("network"):
        labels[NETWORK_LABEL] = _convert(given["network"], str, "network")
    if labels.get(NETWORK_LABEL):
        NETWORK.key(region, labels[NETWORK_LABEL])  # raises for a name that no network can have
    return labels


def _name(kind: Kind[Any, Any], given: dict[str, Any]) -> str:
    name = given.get("name")
    if not isinstance(name, str):
        raise _Wrong(f"is a {kind.name} without a name: write name: …")
    return name


def _served(kind: Kind[Any, Any], node: Node, region: Region, faults: list[Fault]) -> Sequence[WantedObject]:
    """A request for an object that balancers serve, read like their own file, with problems at their own lines."""
    assert isinstance(node, TableNode)
    name = _name(kind, _plain(node))
    spec = next((value for key, value in node.entries if key.text == "spec"), TableNode((), node.mark))
    notes = Notes()
    thing: Any = read_section(kind.struct, spec, "spec", notes)
    faults += notes.faults
    if thing is msgspec.UNSET or notes.faults:
        return ()
    wrong = unfit(thing)
    if wrong is not None:
        raise ValueError(wrong)
    return (wanted(kind, region, name, thing),)


def _convert(given: Any, into: Any, where: str = "spec") -> Any:
    try:
        return msgspec.convert(given, into, strict=False)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at `$")
        raise _Wrong(f"{where}{place.rstrip('`')}: {what[:1].lower()}{what[1:]}") from error


def _refuse_unknown(given: Mapping[str, Any], known: Sequence[str]) -> None:
    for field in given:
        if field not in known:
            raise _Wrong(f"has an unknown field {field}{closest(field, known)}")
