"""Recordings of pods on a real kubelet, run against the embedded node. As a program: all of them, as a list (`make behaviour`).

The runner and the comparison are those with which the recordings were made; they stay where they are.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml
from support.cluster_under_test import embedded, other_cluster
from support.shared_folder import reason_without, shared_path

from trainwright.api.objects import Obj
from trainwright.embedded.home import Home

LEVELS = ("end", "way", "events", "logs")
WORKERS = 10
"""Pods mostly wait: for back-offs, deadlines, probes."""
RUNTIME_WORDS = re.compile(r"failed to create containerd task: .*: error during container init: ")
"""What a container runtime puts before the reason for which a container does not start; this node has none."""
EXEC_TOO_LATE = "container is in CONTAINER_EXITED state"
"""A probe of a container that has just ended; this node makes none."""
IMAGES = {"images": [{"image": "docker.io/local/base:*"}, {"image": "*", "absent": True}]}
"""The image of the recordings: this installation has what its commands need. No other one was there, nor a registry."""
NOT_HONOURED: dict[str, str] = {}
"""Cases that this node cannot match, with the words of the event that says so."""


def recordings() -> Path:
    """The folder of the recordings."""
    return shared_path("goldens/kubelet")


def play(kubeconfig: Path, names: Sequence[str], out: Path) -> None:
    """Run these cases on a cluster, and write what was observed below `out`. Raises CalledProcessError."""
    cases = [str(recordings() / "cases" / name) for name in names]
    command = [sys.executable, str(recordings() / "run.py"), "--kubeconfig", str(kubeconfig), "--out", str(out)]
    subprocess.run([*command, "--workers", str(WORKERS), *cases], check=True, stdout=subprocess.DEVNULL)


def differences(name: str, observed: Path, levels: Sequence[str] = LEVELS) -> str:
    """What differs from the recording of a case on these levels, as text; empty if nothing does."""
    if not (observed / name / "observed.yaml").exists():
        return "the case was not played to its end"
    command = [sys.executable, str(recordings() / "compare.py"), "--only", ",".join(levels)]
    compared = subprocess.run(
        [*command, str(recordings() / "cases" / name), str(observed / name)], capture_output=True, text=True, check=False
    )
    failed = f"compare.py ended with {compared.returncode}"  # killed, it has said nothing
    found = "" if compared.returncode == 0 else compared.stdout or compared.stderr or failed
    return "\n".join([*([found] if found else []), *(f"no message: {message}" for message in missing_messages(name, observed))])


def missing_messages(name: str, observed: Path) -> list[tuple[str, ...]]:
    """The recorded messages of events, pods and containers that this node did not give; those of a runtime by their last part."""
    recorded, given = (
        set(_messages(yaml.safe_load((folder / name / "observed.yaml").read_text("utf-8"))))
        for folder in (recordings() / "cases", observed)
    )
    wanted = {(*where, RUNTIME_WORDS.sub("", text)) for *where, text in recorded if text and EXEC_TOO_LATE not in text}
    return sorted(
        wanted - {(*where, text.removesuffix("local") + "<node>" if where[-1] == "Scheduled" else text) for *where, text in given}
    )


def _messages(observed: Obj) -> Iterator[tuple[str, ...]]:
    for event in observed["events"]:
        yield "event", event["object"], event["reason"], event["message"]
    for name, pod in observed["pods"].items():
        for status in pod["statuses"]:
            yield "pod", name, str(status.get("reason")), status.get("message", "")
            for container in [*status.get("init", []), *status.get("containers", [])]:
                for state in (container.get("state", {}), container.get("last", {})):
                    for kind, body in state.items():
                        yield kind, container["name"], str(body.get("reason")), body.get("message", "")


def played(names: Sequence[str], folder: Path) -> Path:
    """Return the folder with what was observed of these cases on the embedded cluster, or on the one that was asked for instead."""
    observed, other = folder / "observed", other_cluster()
    if other is not None:
        play(other, names, observed)
    else:
        home = Home(folder / "home")
        home.make()
        (home.path / "images.yaml").write_text(yaml.safe_dump(IMAGES))
        with embedded(folder, node=True) as kubeconfig:
            play(kubeconfig, names, observed)
    return observed


def main() -> int:
    """Play the cases whose names begin with one of the arguments (all without any). 1 if something differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wanted", nargs="*", help="beginnings of names")
    parser.add_argument("--levels", default=",".join(LEVELS), help="end,way,events,messages,logs")
    parser.add_argument("--json", action="store_true", help="print the differences as JSON")
    arguments = parser.parse_args()
    if not recordings().is_dir():
        print(reason_without("goldens/kubelet"), file=sys.stderr)
        return 1
    every = sorted(case.name for case in (recordings() / "cases").iterdir())
    names = [name for name in every if not arguments.wanted or any(name.startswith(word) for word in arguments.wanted)]
    with tempfile.TemporaryDirectory() as scratch:
        observed = played(names, Path(scratch))
        found = {name: differences(name, observed, arguments.levels.split(",")) for name in names}
    differing = {name: text for name, text in found.items() if text}
    if arguments.json:
        print(json.dumps(differing, indent=2))
    else:
        for name, text in differing.items():
            print(f"{name}\n{text}")
        print(f"{len(names) - len(differing)} of {len(names)} agree on {arguments.levels} and have the recorded messages")
    return 1 if differing.keys() - NOT_HONOURED.keys() else 0


if __name__ == "__main__":
    sys.exit(main())
