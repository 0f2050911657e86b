"""The tests of registries whose clients are not installed here, in environments of their own with the versions at both ends.

They are built once, as those of `tests/conformance`, and kept in `.clients` (TRAINWRIGHT_CLIENTS).
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from support.client_environments import Unavailable, client_environment

ROOT = Path(__file__).parents[3]

pytestmark = [pytest.mark.slow, pytest.mark.wide(part="registries"), pytest.mark.timeout(900)]

OURS = ["boto3", "hypothesis", "orjson", "pydantic>=2.10,<3", "pytest", "pytest-timeout", "pyyaml", "rich", "typer"]
STORE = ["sqlalchemy", "alembic"]
"""With these, the small client of MLflow has a store on sqlite."""
ENVIRONMENTS = {
    "mlflow-newest": ("test_register_in_mlflow.py", ["mlflow-skinny>=3.1,<3.18", *STORE]),
    "mlflow-oldest": ("test_register_in_mlflow.py", ["mlflow-skinny==3.1.*", "sqlalchemy<2.1", "alembic"]),
    "model-registry-newest": ("test_register_in_model_registry.py", ["model-registry>=0.3.15,<0.4"]),
    "model-registry-oldest": ("test_register_in_model_registry.py", ["model-registry==0.3.15"]),
    "huggingface-hub-1": ("test_register_in_hub.py", ["huggingface_hub==1.0.*"]),
}

EXPECTED_SKIPS = ("without hf_xet by itself", "needs a real S3 server")


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_tests_pass_with_another_client(name: str) -> None:
    module, requirements = ENVIRONMENTS[name]
    try:
        python = client_environment(f"registry-{name}", [*OURS, *requirements])
    except Unavailable as error:
        pytest.skip(str(error))
    kept = {key: os.environ[key] for key in ("PATH", "HOME", "LANG", "TMPDIR", "TRAINWRIGHT_SHARED") if key in os.environ}
    environ = {**kept, "PYTHONPATH": str(ROOT), "MLFLOW_DISABLE_TELEMETRY": "true", "HF_HUB_DISABLE_TELEMETRY": "1"}
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", str(Path(__file__).with_name(module))]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert re.search(r"\b[1-9]\d* passed", done.stdout), done.stdout
    skipped = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    assert not [line for line in skipped if not any(reason in line for reason in EXPECTED_SKIPS)], done.stdout
