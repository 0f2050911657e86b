"""Variables from files that another container of the pod has written (`fileKeyRef`).

The syntax is a part of the shell's: `NAME='value'`, values over several lines, comments. Source: pkg/kubelet/util/env of Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from trainwright.api.objects import Obj
from trainwright.controlplane.node.volumes.errors import ConfigError
from trainwright.controlplane.node.volumes.maker import MadeVolume
from trainwright.controlplane.node.volumes.sub_paths import SubPathEscape, read_in_volume

_LARGEST = 64 * 1024
_IGNORED = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\n|\Z)")
_NAME = re.compile(r"[ \t]*(?P<name>[^\s=]+)=")
_EMPTY = re.compile(r"[ \t][^\n]*(?:\n|\Z)|(?=\n|\Z)")
"""Like in a shell: with a space after `=`, or nothing, the value is empty."""
_QUOTED = re.compile(r"'(?P<value>[^']*)'[ \t]*(?:#[^\n]*)?(?:\n|\Z)")


def value_in_file(reference: Obj, volumes: Mapping[str, MadeVolume]) -> str | None:
    """Return the value of a fileKeyRef, or None for an optional one that there is not.

    `volumes` are those of the pod. Raises ConfigError for a missing file or key, or a file in another syntax.
    """
    name, path, key = reference["volumeName"], reference["path"], reference["key"]
    volume = volumes.get(name)
    if volume is None:
        raise ConfigError(f'cannot find the volume "{name}" for environment variable key "{key}"')
    try:
        content = read_in_volume(volume.path, path, _LARGEST + 1)
    except FileNotFoundError:
        if reference.get("optional"):
            return None
        raise ConfigError(f'environment variable file "{path}" not found in volume "{name}"') from None
    except (OSError, SubPathEscape) as error:
        raise ConfigError(f'environment variable file "{path}" of volume "{name}" cannot be read') from error
    if len(content) > _LARGEST:
        raise ConfigError(f'environment variable file "{path}" of volume "{name}" has more than {_LARGEST} bytes')
    for found, value in parse_env_file(content.decode("utf-8", "surrogateescape")):
        if found == key:
            return value
    if reference.get("optional"):
        return None
    raise ConfigError(f'environment variable key "{key}" not found in file "{path}" of volume "{name}"')


def parse_env_file(text: str) -> Iterator[tuple[str, str]]:
    """Yield names and values in order. Raises ConfigError, with the number of the line, where the syntax is another."""
    position = 0
    while position < len(text):
        if ignored := _IGNORED.match(text, position):
            position = ignored.end()
            continue
        name = _NAME.match(text, position)
        if name is None:
            raise _invalid(text, position, "expected NAME='value'")
        if empty := _EMPTY.match(text, name.end()):
            yield name["name"], ""
            position = empty.end()
            continue
        quoted = _QUOTED.match(text, name.end())
        if quoted is None:
            raise _invalid(text, position, "value must be enclosed in single quotes")
        yield name["name"], quoted["value"]
        position = quoted.end()


def _invalid(text: str, position: int, why: str) -> ConfigError:
    line = text.count("\n", 0, position) + 1
    return ConfigError(f"invalid environment variable format at line {line}: {why}")
