"""Importing the package is cheap: components and operators do it in processes that prepare nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"pydantic", "pyarrow", "huggingface_hub", "obstore", "boto3", "httpx", "httpx2", "requests", "urllib3", "kubernetes"}


def loaded(code: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"], capture_output=True, check=True)
    return set(done.stdout.decode().split())


def test_the_package_loads_nothing_heavy() -> None:
    found = loaded("import trainwright.initializers")
    assert not found & HEAVY
    assert not {name for name in found if name.startswith(("trainwright.storage", "trainwright.workspace"))}


@pytest.mark.medium
def test_the_downloader_loads_one_http_client_only() -> None:
    assert loaded("import trainwright.initializers.hub, trainwright.initializers.http_file") & HEAVY == {"urllib3"}


def test_all_public_names_can_be_imported() -> None:
    import trainwright.initializers as package

    assert {name for name in package.__all__ if getattr(package, name).__name__ == name} == set(package.__all__)
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = package.nothing
