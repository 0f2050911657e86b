"""`make finetune EXPORT=s3://bucket/prefix`, with the usual environment variables, against a real S3 server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from quickstart_command import command, manifest_digest, run

from trainwright.checkpoints import verify_export

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def test_the_checkpoint_goes_to_the_bucket_and_is_evaluated_from_there(runs: Path, s3_folder: str) -> None:
    status, output = run(command(runs, "--name", "bucket", "--export", s3_folder), runs / "bucket.log")
    assert status == 0, output
    result = json.loads((runs / "bucket/result.json").read_text("utf-8"))
    assert result["checkpoint"] == f"{s3_folder}/bucket/checkpoint-20"
    assert verify_export(result["checkpoint"], digest=manifest_digest(output)).step == 20
    secrets = [path for path in (runs / "bucket").rglob("*") if path.is_file() and b"a secret of the tests" in path.read_bytes()]
    assert not secrets
