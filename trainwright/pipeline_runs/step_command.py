"""The command of a step whose program is in its image: it names the function of a component, and contains no source.

It is written where pipelines are compiled, and read where they run on this machine or are checked. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

RUNNER = "trainwright.steps.run"
EXECUTOR = "kfp.dsl.executor_main"
"""kfp.local takes a command for a Python component only if this text is in it. Here it is the name of the shell's script."""
_SCRIPT = f'exec env _KFP_RUNTIME=true python3 -X utf8 -m {RUNNER} "$@"'
"""Without `exec` the container's first process is a shell, which passes no signal on: a pod that is deleted takes its whole grace
period, and the step never hears of it. Without `-X utf8`, an image with another locale would change texts of other scripts.
"""


def step_command(module: str, version: str) -> list[str]:
    """Return the command for a function of a module, which kfp names in the arguments of the container.

    `version` is that of Trainwright, which the step compares with that of its image.
    """
    return ["sh", "-ec", _SCRIPT, EXECUTOR, "--version", version, "--module", module]


def runner_arguments(container: Mapping[str, Any]) -> list[str] | None:
    """Return the arguments of the runner in a compiled container; None for every other program."""
    command: Sequence[str] = container.get("command", [])
    return [*command[4:], *container.get("args", [])] if list(command[:4]) == ["sh", "-ec", _SCRIPT, EXECUTOR] else None
