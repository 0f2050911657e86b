"""The limit of the control plane's memory, and that of the programs that it starts."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from trainwright.controlplane.heap import limit_memory

GIB = 1024**3
PROGRAM = f"""
import json, resource, sys
from {limit_memory.__module__} import limit_memory
from trainwright.controlplane.node.supervisor.start_command import reset_process
given = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_DATA, (given, resource.getrlimit(resource.RLIMIT_DATA)[1]))
limit_memory()
limited = resource.getrlimit(resource.RLIMIT_DATA)[0]
reset_process()
print(json.dumps([limited, resource.getrlimit(resource.RLIMIT_DATA)[0]]))
"""


@pytest.mark.medium
@pytest.mark.parametrize(
    ("given", "own"), [(2 * GIB, 2 * GIB), (8 * GIB, 4 * GIB), (-1, 4 * GIB)], ids=["lower", "higher", "none"]
)
def test_pods_get_the_limit_that_the_control_plane_was_started_with(given: int, own: int) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(given)], capture_output=True, check=True)
    assert json.loads(done.stdout) == [own, given]
