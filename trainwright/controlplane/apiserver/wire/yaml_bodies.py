"""Bodies in YAML, as Kubernetes reads them: times stay text, numbers are JSON's, and nothing in a few bytes becomes gigabytes.

Read twice with libyaml: once as a stream, which finds aliases and depth at no risk, then as a value.
"""

from __future__ import annotations

from typing import Any

import orjson
import yaml

from trainwright.controlplane.apiserver.wire.limits import BODY_DEPTH

_Fast: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_FastDumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_OPENING = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_CLOSING = (yaml.MappingEndEvent, yaml.SequenceEndEvent)
_PREFIX = "tag:yaml.org,2002:"


def decode_yaml(body: bytes) -> Any:
    """The content, with nothing in it that JSON cannot say. Raises ValueError, which tells what is wrong."""
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
        # Through JSON once, so that keys are strings.
        return orjson.loads(orjson.dumps(content, option=orjson.OPT_NON_STR_KEYS))
    except (yaml.YAMLError, TypeError, RecursionError, OverflowError, LookupError, AttributeError) as error:
        # Besides its own errors, PyYAML fails on odd values of odd tags with whatever comes.
        raise ValueError(str(error)) from None


def encode_yaml(content: Any) -> bytes:
    """An answer in YAML."""
    text: bytes = yaml.dump(content, Dumper=_FastDumper, sort_keys=True, allow_unicode=True, encoding="utf-8")
    return text


class _Loader(_Fast):  # type: ignore[misc]
    pass


def _whole(loader: Any, node: yaml.ScalarNode) -> Any:
    # Not base 60 (`1:30`): text to Kubernetes, and a page of it would take minutes.
    if ":" in str(node.value):
        return loader.construct_scalar(node)
    return yaml.constructor.SafeConstructor.construct_yaml_int(loader, node)


def _number(loader: Any, node: yaml.ScalarNode) -> Any:
    if ":" in str(node.value):
        return loader.construct_scalar(node)
    value = yaml.constructor.SafeConstructor.construct_yaml_float(loader, node)
    if value != value or value in (float("inf"), float("-inf")):
        raise yaml.YAMLError(f"json: unsupported value: {node.value}")
    return value


_Loader.add_constructor(f"{_PREFIX}int", _whole)
_Loader.add_constructor(f"{_PREFIX}float", _number)
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != f"{_PREFIX}timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
