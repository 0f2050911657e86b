"""How to grant a missing permission, for `trainwright doctor`: the rule, its role, and the command that prints all rules."""

from __future__ import annotations

from trainwright.jobs.submit.rbac import CALLS_OF, ApiCall
from trainwright.jobs.submit.rbac_manifests import role_of, rule_line
from trainwright.submission.jobs_client import Mode


def calls_of(mode: Mode) -> tuple[ApiCall, ...]:
    """Return the API calls of a job in a submission mode, without those that are not to be granted for it."""
    return tuple(call for call in CALLS_OF[mode] if call.is_advised)


def rule_advice(call: ApiCall, namespace: str, mode: Mode = Mode.trainjob) -> str:
    """Return the rule that grants a call, and the command that prints it with all others if it does."""
    advice = f"add to the rules of {role_of(call, namespace)}: {rule_line(call)}"
    is_printed = call.is_granted and call in calls_of(mode)
    return f"{advice}; {print_command(namespace, mode)} prints it with all others" if is_printed else advice


def print_command(namespace: str, mode: Mode = Mode.trainjob) -> str:
    """Return the command that prints the manifests for a namespace."""
    options = " --mode jobset" if mode is Mode.jobset else ""
    return f"`trainwright rbac --namespace {namespace} --service-account NAME{options}`"
