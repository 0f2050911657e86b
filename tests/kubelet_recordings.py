"""Recordings of pods on a real kubelet, run against the embedded node. As a program: all of them, as a list (`make behaviour`).

The runner and the comparison are those with which the recordings were made; they stay where they are.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from clusters import embedded, other_cluster

LEVELS = ("end", "way", "events", "logs")
WORKERS = 10
"""Pods mostly wait: for back-offs, deadlines, probes."""
NOT_HONOURED: dict[str, str] = {}
"""Cases that this node cannot match, with the words of the event that says so."""


def recordings() -> Path:
    """The folder of the recordings."""
    shared = Path(os.environ.get("TRAINWRIGHT_SHARED") or Path(__file__).parents[2] / "shared")
    return shared / "goldens" / "kubelet"


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
    return "" if compared.returncode == 0 else compared.stdout or compared.stderr


def main() -> int:
    """Play the cases whose names begin with one of the arguments (all without any). 1 if something differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wanted", nargs="*", help="beginnings of names")
    parser.add_argument("--levels", default=",".join(LEVELS), help="end,way,events,messages,logs")
    parser.add_argument("--json", action="store_true", help="print the differences as JSON")
    arguments = parser.parse_args()
    every = sorted(case.name for case in (recordings() / "cases").iterdir())
    names = [name for name in every if not arguments.wanted or any(name.startswith(word) for word in arguments.wanted)]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        other = other_cluster()
        if other is not None:
            play(other, names, folder / "observed")
        else:
            with embedded(folder, node=True) as kubeconfig:
                play(kubeconfig, names, folder / "observed")
        found = {name: differences(name, folder / "observed", arguments.levels.split(",")) for name in names}
    differing = {name: text for name, text in found.items() if text}
    if arguments.json:
        print(json.dumps(differing, indent=2))
    else:
        for name, text in differing.items():
            print(f"{name}\n{text}")
        print(f"{len(names) - len(differing)} of {len(names)} agree on {arguments.levels}")
    return 1 if differing.keys() - NOT_HONOURED.keys() else 0


if __name__ == "__main__":
    sys.exit(main())
