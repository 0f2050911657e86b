"""Keeps values that KFP's launcher cannot read, such as NaN, out of the outputs of a step: they become null, with a warning.

Every component's program installs this before its function runs. Without it, a step would fail at its end, after all its work.
"""

from __future__ import annotations

import logging
from typing import Any

from trainwright.api.finite_json import finite_json
from trainwright.jobs.request.typed_parameters import has_large_integer

log = logging.getLogger(__name__)
_INSTALLED = "_trainwright_finite_outputs"


def install() -> None:
    """Make kfp's executor in this process write null for values that are not finite, in parameters and in artifacts' metadata."""
    from kfp.dsl.executor import Executor

    if hasattr(Executor, _INSTALLED):
        return
    handle, write = Executor.handle_single_return_value, Executor.write_executor_output

    def handle_finite(self: Any, output_name: str, annotation_type: Any, return_value: Any) -> None:
        value = _finite(return_value, output_name)
        if value is None and return_value is not None:
            self.excutor_output.setdefault("parameterValues", {})[output_name] = None
        else:
            handle(self, output_name, annotation_type, value)

    def write_finite(self: Any, func_output: Any = None) -> Any:
        for name, artifact in self.output_artifacts.items():
            artifact.metadata = _finite(artifact.metadata, name)
        return write(self, func_output)

    Executor.handle_single_return_value, Executor.write_executor_output = handle_finite, write_finite
    setattr(Executor, _INSTALLED, True)


def _finite(value: Any, output: str) -> Any:
    if isinstance(value, tuple):
        return value
    found = finite_json(value)
    for change in found.changed:
        log.warning("event=output_changed output=%s %s", output, change)
    if has_large_integer(found.value):
        log.warning("event=output_changed output=%s: an integer of 2**53 or above, which a server keeps as a double", output)
    return found.value if found.changed else value
