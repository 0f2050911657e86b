"""Whether this environment brings a tool along, and which variables go to installers and tools."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest

from trainwright.programs import Redaction, installer_variables, variables_for
from trainwright.tools import BadToolInput, tool_environment
from trainwright.tools.environment import is_installed, parse_requirements

PYDANTIC = importlib.metadata.version("pydantic")


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        ("pydantic>=2", True),
        (f"pydantic=={PYDANTIC}", True),
        ("Pydantic", True),
        ("pydantic>=99", False),
        ("no-such-package-anywhere", False),
        ("no-such-package-anywhere; python_version < '3'", True),
        ("pydantic[no-such-extra]", False),
        ("pydantic[timezone]; sys_platform == 'nothing'", True),
        ("pydantic @ https://example.com/pydantic.whl", False),
    ],
)
def test_a_requirement_is_compared_with_what_is_installed(requirement: str, expected: bool) -> None:
    assert [is_installed(each) for each in parse_requirements([requirement])] == [expected]


def test_an_extra_counts_only_with_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about = tmp_path / "with_extra-1.0.dist-info"
    about.mkdir()
    needs = "Requires-Dist: pydantic>=2; extra == 'there'\nRequires-Dist: no-such-package-anywhere; extra == 'missing'\n"
    extras = "Provides-Extra: there\nProvides-Extra: missing\n"
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: with-extra\nVersion: 1.0\n{extras}{needs}")
    monkeypatch.syspath_prepend(str(tmp_path))
    [there, missing] = parse_requirements(["with-extra[there]>=1", "with-extra[missing]>=1"])
    assert is_installed(there)
    assert not is_installed(missing)


def test_an_environment_that_has_everything_is_used_itself(tmp_path: Path) -> None:
    assert tool_environment(["pydantic>=2", "packaging"], name="tool", cache=tmp_path) == Path(sys.executable)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("requirements", "name"), [(["not a requirement!"], "tool"), (["x"], "../tool"), (["x"], "")])
def test_malformed_requirements_and_names_are_refused(requirements: list[str], name: str, tmp_path: Path) -> None:
    with pytest.raises(BadToolInput):
        tool_environment(requirements, name=name, cache=tmp_path)


def test_uv_gets_what_pip_is_told(tmp_path: Path) -> None:
    given = installer_variables(
        {
            "PIP_INDEX_URL": "https://u:pw@index/simple",
            "PIP_EXTRA_INDEX_URL": "https://b/simple",
            "PIP_CERT": "/ca.pem",
            "PIP_FIND_LINKS": f"{tmp_path} /not/there https://links/",
            "PIP_NO_INDEX": "1",
            "PYTHONPATH": "/elsewhere",
            "VIRTUAL_ENV": "/venv",
            "AWS_SECRET_ACCESS_KEY": "hidden",
            "PIP_TARGET": "/target",
            "PATH": "/bin",
        }
    )
    assert given["UV_DEFAULT_INDEX"] == "https://u:pw@index/simple"
    assert given["UV_INDEX"] == "https://b/simple"
    assert given["SSL_CERT_FILE"] == "/ca.pem"
    assert given["UV_FIND_LINKS"] == f"{tmp_path},https://links/"
    assert given["UV_NO_INDEX"] == "1"
    assert given["PATH"] == "/bin"
    assert not {"PYTHONPATH", "VIRTUAL_ENV", "AWS_SECRET_ACCESS_KEY", "PIP_TARGET"} & set(given)


def test_variables_of_uv_take_precedence() -> None:
    given = installer_variables({"PIP_INDEX_URL": "https://a/", "UV_INDEX_URL": "https://b/"})
    assert "UV_DEFAULT_INDEX" not in given
    assert given["UV_INDEX_URL"] == "https://b/"
    assert installer_variables({"UV_FIND_LINKS": "https://c/,/not/there"})["UV_FIND_LINKS"] == "https://c/"
    assert "UV_FIND_LINKS" not in installer_variables({"UV_FIND_LINKS": "/not/there", "PIP_FIND_LINKS": "https://c/"})


def test_a_tool_gets_only_the_variables_that_it_needs() -> None:
    environ = {"PATH": "/bin", "LC_ALL": "C", "AWS_REGION": "x", "HF_TOKEN": "t", "MLFLOW_TRACKING_PASSWORD": "p"}
    assert variables_for(environ) == {"PATH": "/bin", "LC_ALL": "C"}
    assert variables_for(environ, ["AWS_*"]) == {"PATH": "/bin", "LC_ALL": "C", "AWS_REGION": "x"}


def test_secrets_and_passwords_are_taken_out_of_texts() -> None:
    redact = Redaction({"AWS_SECRET_ACCESS_KEY": "s3cr3t-value", "HTTPS_PROXY": "http://me:p4ssw0rd@proxy:1", "PATH": "/usr/bin"})
    text = redact("key s3cr3t-value, p4ssw0rd, git https://u:pw@host/x, /usr/bin")
    assert text == "key ***, ***, git https://host/x, /usr/bin"
