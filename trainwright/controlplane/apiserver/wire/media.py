"""Content negotiation (Accept, Content-Type) and decoding of JSON, YAML and protobuf bodies.

YAML is decoded as Kubernetes does: timestamps stay strings, numbers are JSON numbers, aliases are rejected. libyaml parses each body
twice: first as a stream of events, which safely detects aliases and deep nesting, then into a value.
Media types of patches are those of RFC 7386, RFC 6902, and the two that Kubernetes defines.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from typing import Any

import orjson
import yaml

from trainwright.api.errors import BadRequest, UnsupportedMediaType
from trainwright.api.objects import Obj
from trainwright.controlplane.apiserver.wire.api_errors import NotAcceptable
from trainwright.controlplane.apiserver.wire.bodies import BODY_DEPTH, is_deeper
from trainwright.controlplane.apiserver.wire.protobuf import decode_protobuf
from trainwright.text.yaml_writer import to_yaml

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
_SUMMARY = 30
"""Bytes of a body quoted in an error message."""
GZIP_MIN_BYTES = 128 * 1024
"""Minimum bytes of a compressed response; below, compression does not pay on a loopback connection."""
_READABLE = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
_VIEWS = {
    ("Table", "v1", "meta.k8s.io"),
    ("PartialObjectMetadata", "v1", "meta.k8s.io"),
    ("PartialObjectMetadataList", "v1", "meta.k8s.io"),
    ("APIGroupDiscoveryList", "v2", "apidiscovery.k8s.io"),
}
_Fast: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_OPENING = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_CLOSING = (yaml.MappingEndEvent, yaml.SequenceEndEvent)
_PREFIX = "tag:yaml.org,2002:"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
UNSUPPORTED_MEDIA_TYPE = "415: Unsupported Media Type"
"""The message for an unsupported patch type."""


@dataclass(frozen=True)
class Media:
    """The negotiated response format: media type, and the kind to convert objects to (empty for none)."""

    media_type: str = JSON
    view: str = ""

    @classmethod
    def negotiate(cls, header: str | None) -> Media:
        """The first supported media type of an Accept header. Raises NotAcceptable."""
        for clause in (header or "*/*").split(","):
            name, *parameters = [part.strip() for part in clause.split(";")]
            given = dict(parameter.split("=", 1) for parameter in parameters if "=" in parameter)
            if name not in (JSON, YAML, "application/*", "*/*"):
                continue
            if "as" not in given:
                return cls(YAML if name == YAML else JSON)
            if (given["as"], given.get("v"), given.get("g")) in _VIEWS:
                return cls(YAML if name == YAML else JSON, given["as"])
        offered = f"{', '.join(_READABLE)}, application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
        raise NotAcceptable(f"406: Not Acceptable\n\nAvailable representations: {offered}", details={})

    def encode(self, data: bytes) -> bytes:
        """Convert JSON to the negotiated media type."""
        return data if self.media_type == JSON else encode_yaml(orjson.loads(data))


def compress(data: bytes, accept_encoding: str | None) -> tuple[bytes, dict[str, str]]:
    """A response body and its headers, compressed if it is large and the client accepts gzip."""
    if len(data) < GZIP_MIN_BYTES or "gzip" not in (accept_encoding or ""):
        return data, {}
    return gzip.compress(data, compresslevel=1), {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}


def media_type(header: str | None) -> str:
    """The media type of a Content-Type header; defaults to JSON."""
    return (header or JSON).partition(";")[0].strip().lower() or JSON


def decode_body(body: bytes, content_type: str, kind: str) -> Any:
    """Decode a request body. Raises UnsupportedMediaType, BadRequest."""
    name = media_type(content_type)
    unrecognised = f"the object provided is unrecognized (must be of type {kind})"
    if name == PROTOBUF:
        try:
            return decode_protobuf(body)
        except BadRequest as error:
            raise BadRequest(f"{unrecognised}: {error} ({summarize_body(body)})") from None
    if name not in (JSON, YAML):
        raise UnsupportedMediaType(
            f"the body of the request was in an unknown format - accepted media types include: {', '.join(_READABLE)}"
        )
    try:
        return decode(body, yaml_allowed=name == YAML, what=unrecognised)
    except BadRequest as error:
        raise BadRequest(f"{error} ({summarize_body(body)})") from None


def summarize_body(body: bytes) -> str:
    """The beginning of a body for an error message; hexadecimal unless it looks like JSON."""
    if not body:
        return "<empty>"
    shown = body[:_SUMMARY].decode(errors="replace") if body[:1] == b"{" else body[:_SUMMARY].hex()
    return f"{shown} ..." if len(body) > _SUMMARY else shown


def decode_options(body: bytes, content_type: str) -> Any:
    """Decode DeleteOptions. Raises UnsupportedMediaType, BadRequest."""
    if media_type(content_type) != JSON:
        return decode_body(body, content_type, "DeleteOptions")
    try:
        return _parsed(body)
    except ValueError as error:
        raise BadRequest(f"couldn't get version/kind; json parse error: {error}") from None


def _parsed(body: bytes) -> Any:
    content = orjson.loads(body)
    if is_deeper(content, BODY_DEPTH):
        raise ValueError("exceeded max depth")
    return content


def decode_patch(body: bytes, *, yaml_allowed: bool) -> Any:
    """Decode a patch. Raises BadRequest, for JSON with the parser's message alone."""
    try:
        return decode(body, yaml_allowed=yaml_allowed, what="error decoding YAML" if yaml_allowed else "error decoding patch")
    except BadRequest as error:
        if yaml_allowed:
            raise
        text = body.strip()
        unfinished = not text or (text[:1] in b"{[" and text[-1:] not in b"}]")
        if text[:1] == b"[":  # kube-apiserver parses JSON patches with another parser
            raise
        why = "unexpected end of JSON input" if unfinished else error.message.partition("json parse error: ")[2]
        raise BadRequest(why) from None


def decode(body: bytes, *, yaml_allowed: bool, what: str) -> Any:
    """Decode JSON, or YAML if allowed. Raises BadRequest with a message that begins with `what`."""
    try:
        return _parsed(body)
    except ValueError as error:
        if not yaml_allowed:
            raise BadRequest(f"{what}: json parse error: {error}") from None
    try:
        return decode_yaml(body)
    except ValueError as error:
        raise BadRequest(f"{what}: yaml: {error}") from None


def encode_list(api_version: str, kind: str, meta: Obj, items: list[bytes]) -> bytes:
    """Assemble a list from items that are already serialized."""
    head = orjson.dumps({"kind": f"{kind}List", "apiVersion": api_version, "metadata": meta})
    return head[:-1] + b',"items":[' + b",".join(items) + b"]}"


def decode_yaml(body: bytes) -> Any:
    """Decode a body into JSON-compatible values. Raises ValueError with the reason."""
    try:
        depth = 0
        for event in yaml.parse(body, Loader=_Fast):
            if isinstance(event, yaml.AliasEvent):
                raise ValueError("aliases are not supported")
            depth += isinstance(event, _OPENING)
            depth -= isinstance(event, _CLOSING)
            if depth > BODY_DEPTH:
                raise ValueError("exceeded max depth")
        content = yaml.load(body, Loader=_Loader)  # noqa: S506 - a SafeLoader with less
        # A round trip through JSON converts keys to strings.
        return orjson.loads(orjson.dumps(content, option=orjson.OPT_NON_STR_KEYS))
    except (yaml.YAMLError, TypeError, RecursionError, OverflowError, LookupError, AttributeError) as error:
        # PyYAML raises various errors, not only its own, for unusual tagged values.
        raise ValueError(str(error)) from None


class _Loader(_Fast):  # type: ignore[misc]  # a class only at run time: C or Python
    pass


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != f"{_PREFIX}timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def encode_yaml(content: Any) -> bytes:
    """Serialize a response as YAML."""
    return to_yaml(content, sort_keys=True).encode()


def _whole(loader: Any, node: yaml.ScalarNode) -> Any:
    # No base 60 (`1:30`): Kubernetes reads it as a string, and long ones take minutes to parse.
    if ":" in str(node.value):
        return loader.construct_scalar(node)
    return yaml.constructor.SafeConstructor.construct_yaml_int(loader, node)


_Loader.add_constructor(f"{_PREFIX}int", _whole)


def _number(loader: Any, node: yaml.ScalarNode) -> Any:
    if ":" in str(node.value):
        return loader.construct_scalar(node)
    value = yaml.constructor.SafeConstructor.construct_yaml_float(loader, node)
    if value != value or value in (float("inf"), float("-inf")):
        raise yaml.YAMLError(f"json: unsupported value: {node.value}")
    return value


_Loader.add_constructor(f"{_PREFIX}float", _number)
