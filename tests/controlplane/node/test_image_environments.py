"""Images: which names a kubelet takes, and which environment of this machine stands in for one."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.controlplane.environments import EnvironmentStore
from trainwright.controlplane.environments import definition as definitions
from trainwright.controlplane.node.container_image import AbsentImage, PullFailure
from trainwright.controlplane.node.images import (
    ImageCatalogue,
    ImagesFileError,
    default_pull_policy,
    image_name_error,
)
from trainwright.controlplane.node.images.references import ImageReference, InvalidReference, parse_reference
from trainwright.controlplane.node.volumes.references import ConfigError

HEX = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("image", "reference"),
    [
        ("busybox", ("docker.io", "library/busybox", "", "")),
        ("busybox:1.36", ("docker.io", "library/busybox", "1.36", "")),
        ("me/app", ("docker.io", "me/app", "", "")),
        ("docker.io/busybox", ("docker.io", "library/busybox", "", "")),
        ("index.docker.io/busybox", ("docker.io", "library/busybox", "", "")),
        ("localhost/app", ("localhost", "app", "", "")),
        ("registry:5000/a/b:t", ("registry:5000", "a/b", "t", "")),
        ("UPPER/case", ("UPPER", "case", "", "")),
        ("ghcr.io/a/b__c/d-e---f.g:T_1.2-x", ("ghcr.io", "a/b__c/d-e---f.g", "T_1.2-x", "")),
        ("[fd00::1]:5000/a", ("[fd00::1]:5000", "a", "", "")),
        (f"a@sha256:{HEX}", ("docker.io", "library/a", "", f"sha256:{HEX}")),
        (f"a:t@sha256:{HEX}", ("docker.io", "library/a", "t", f"sha256:{HEX}")),
        (f"a@sha512:{HEX}{HEX}", ("docker.io", "library/a", "", f"sha512:{HEX}{HEX}")),
        ("x" * 247, ("docker.io", "library/" + "x" * 247, "", "")),
    ],
)
def test_valid_names(image: str, reference: tuple[str, str, str, str]) -> None:
    assert parse_reference(image) == ImageReference(*reference)
    assert image_name_error(image) == ""


@pytest.mark.parametrize(
    ("message", "images"),
    [
        ("invalid reference format: repository name (library/Busybox) must be lowercase", ["Busybox"]),
        (f"invalid repository name ({HEX}), cannot specify 64-byte hexadecimal strings", [HEX]),
        (
            "invalid reference format",
            ["", ":tag", "a:", "a:tag!", "a:-tag", "a:" + "t" * 129, "a//b", "a/", "/a", "-a/b", "a..b"],
        ),
        ("invalid reference format", ["a___b", "a b", "a\n", "é", "https://example.com/a", "registry:port/a", "a@sha256:short"]),
        ("invalid checksum digest length", ["a@sha256:" + "0" * 63]),
        ("invalid checksum digest format", ["a@sha256:" + HEX.upper(), "a:t@Md5:" + "0" * 32]),
        ("unsupported digest algorithm", ["a@md5:" + "0" * 32]),
        ("repository name must not be more than 255 characters", ["x" * 248]),
    ],
)
def test_invalid_names(message: str, images: list[str]) -> None:
    for image in images:
        told = f'Failed to apply default image tag "{image}": couldn\'t parse image name "{image}": {message}'
        assert image_name_error(image) == told


COMPONENT = st.from_regex(r"[a-z0-9]{1,4}((\.|_|__|-{1,3})[a-z0-9]{1,3}){0,2}", fullmatch=True)
DOMAIN = st.sampled_from(["", "ghcr.io/", "localhost/", "registry:5000/", "a.b-c.d/"])
TAG = st.just("") | st.from_regex(r":[A-Za-z0-9_][A-Za-z0-9_.-]{0,8}", fullmatch=True)
DIGEST = st.just("") | st.from_regex(r"@sha256:[a-f0-9]{64}", fullmatch=True)


@pytest.mark.medium
@given(domain=DOMAIN, path=st.lists(COMPONENT, min_size=1, max_size=3).map("/".join), tag=TAG, digest=DIGEST)
def test_property_what_follows_the_grammar_is_valid_and_stays_the_same_in_full(
    domain: str, path: str, tag: str, digest: str
) -> None:
    found = parse_reference(domain + path + tag + digest)
    assert found.path.endswith(path) or "." in path.split("/")[0]
    assert (f":{found.tag}" if found.tag else "", f"@{found.digest}" if found.digest else "") == (tag, digest)
    assert parse_reference(found.name + tag + digest) == found


@given(image=st.text(alphabet=st.sampled_from("abAZ09./:@-_[] \n"), max_size=20))
def test_property_any_text_is_valid_or_refused_with_a_reason(image: str) -> None:
    try:
        found = parse_reference(image)
    except InvalidReference:
        assert len(image_name_error(image)) > 2 * len(image)
        return
    assert re.fullmatch(r"[a-z0-9._/-]+", found.path)
    assert parse_reference(found.name).name == found.name


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("a", "Always"),
        ("a:latest", "Always"),
        (f"a:latest@sha256:{HEX}", "Always"),
        ("a:1", "IfNotPresent"),
        (f"a@sha256:{HEX}", "IfNotPresent"),
        ("registry:5000/a", "Always"),
        ("Not Valid", "IfNotPresent"),
    ],
)
def test_pull_policy(image: str, policy: str) -> None:
    assert default_pull_policy(image) == policy


def catalogue_of(file: Path) -> ImageCatalogue:
    return ImageCatalogue(file.parent, EnvironmentStore(file.parent / "environments"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    for name in ("one", "two"):
        (tmp_path / name / "bin").mkdir(parents=True)
    return tmp_path / "images.yaml"


@pytest.mark.parametrize(
    ("found", "images"),
    [
        ("two", ["ghcr.io/kubeflow/trainer/torch-runtime:v2", "ghcr.io/kubeflow/trainer/dataset-initializer"]),
        (
            "one",
            [
                "pytorch/pytorch",
                "docker.io/pytorch/pytorch:2.13",
                f"pytorch/pytorch@sha256:{HEX}",
                "docker.io/library/python:3.11",
            ],
        ),
        (None, ["pytorch/pytorch-nightly", "python:3.12", "Not Valid"]),
    ],
)
def test_the_first_entry_that_matches(found: str | None, images: list[str], file: Path) -> None:
    file.write_text(
        f"""
images:
- image: "pytorch/pytorch"
  environment: {file.parent}/one
- image: "docker.io/library/python:3.11*"
  environment: {file.parent}/one
- image: "ghcr.io/kubeflow/trainer/*"
  environment: {file.parent}/two
- image: "ghcr.io/*"
  environment: {file.parent}/one
"""
    )
    for image in images:
        entry = catalogue_of(file).find(image)
        assert (entry.environment if entry else None) == (file.parent / found if found else None)


@pytest.mark.parametrize("tag", ["", ":v2.3.0", f"@sha256:{HEX}"])
@pytest.mark.parametrize("what", ["dataset", "model"])
def test_upstream_initializers_are_known_without_a_file(what: str, tag: str, file: Path) -> None:
    entry = catalogue_of(file).find(f"ghcr.io/kubeflow/trainer/{what}-initializer{tag}")
    assert entry is not None
    as_is = ("--as-is",) if what == "dataset" else ()
    assert entry.command == ("python", "-m", "trainwright.initializers", what, *as_is, "--target", f"/workspace/{what}")
    assert catalogue_of(file).find("busybox:1") is None


def test_a_changed_file_is_read_again(file: Path) -> None:
    catalogue = catalogue_of(file)
    assert catalogue.find("a") is None
    file.write_text("images: [{image: a, user: 1}]")
    first = catalogue.find("a")
    assert first is not None
    assert first is catalogue.find("a"), "not read again"
    replaced = file.with_suffix(".new")
    replaced.write_text("images: [{image: a, user: 2}]")
    os.replace(replaced, file)
    second = catalogue.find("a")
    assert second is not None
    assert second.user == 2
    file.write_text("images: {}")
    for _ in range(2):
        with pytest.raises(ImagesFileError, match="images: expected a list"):
            catalogue.find("a")
    file.unlink()
    assert catalogue.find("a") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("images: [", "is not valid YAML"),
        ("[]", "expected the one field `images`, a list"),
        ("images: []\n---\nimages: []", "expected one YAML document"),
        ("images: [x]", r"images\[0\]: expected an object with the field `image`"),
        ("images: [{image: ''}]", r"images\[0\]\.image: expected a text, got ''"),
        ("images: [{image: a, env: [A]}]", r"images\[0\]\.env: expected values by the names of variables"),
        ("images: [{image: a, programs: [x]}]", r"images\[0\]\.programs: expected lists of texts by the programs"),
        ("images: [{image: a, absent: 1}]", r"images\[0\]\.absent: expected true or false, got 1"),
        ("images: [{environment: /x}]", r"images\[0\]\.image: is required"),
        (
            "images: [{image: a}, {image: b, enviroment: /x}]",
            r"images\[1\]\.enviroment: unknown field; did you mean environment\?",
        ),
        ("images: [{image: a, environment: x/y}]", r"images\[0\]\.environment: expected an absolute path, got x/y"),
        ("images: [{image: a, command: python -m x}]", r"images\[0\]\.command: expected a list of texts"),
        ("images: [{image: a, workingDir: w}]", r"images\[0\]\.workingDir: expected an absolute path, got w"),
        ("images: [{image: a, env: {A: 1}}]", r"images\[0\]\.env\.A: expected a name and a text \(numbers in quotes\), got 1"),
        ("images: [{image: a, env: {A=B: x}}]", r"images\[0\]\.env\.A=B: expected a name"),
        ("images: [{image: a, user: root}]", r"images\[0\]\.user: expected the numeric id of a user, got 'root'"),
        ("images: [{image: a, programs: {/s: t}}]", r"images\[0\]\.programs\./s: expected a list of texts, a program and its"),
        ("images: [{image: a, absent: true, user: 5}]", r"images\[0\]\.user: an absent image has no other fields"),
        ("images: [{image: a, environment: /none/such}]", r"images\[0\]\.environment: /none/such has no folder bin"),
    ],
)
def test_a_file_that_is_not_right(text: str, message: str, file: Path) -> None:
    file.write_text(text)
    with pytest.raises(ImagesFileError, match=f"^{re.escape(str(file))}: {message}"):
        catalogue_of(file).find("a")


def test_an_image_that_cannot_be_pulled_is_tried_again_later_each_time() -> None:
    image = AbsentImage("busybox:1", "no registry")
    tries = (("Pulling", 'Pulling image "busybox:1"'), ("Failed", 'Failed to pull image "busybox:1": no registry'))
    failed = PullFailure("ErrImagePull", "no registry", tries)
    words = 'Back-off pulling image "busybox:1"'
    waits = PullFailure("ImagePullBackOff", f"{words}: ErrImagePull: no registry", (("BackOff", words),))
    assert [image.pull(at) for at in (0, 1, 9, 10, 11, 29, 30)] == [failed, waits, waits, failed, waits, waits, failed]


OWN = """
environments:
- {name: own, images: [registry/own], requirements: [tiny==1], env: {A: b}, command: [run], programs: {/sbin/x: [y]}}
"""


def test_images_of_environments_are_known(file: Path) -> None:
    (file.parent / "environments.yaml").write_text(OWN)
    entry = catalogue_of(file).find("registry/own:2")
    assert entry is not None
    assert entry.definition is not None
    assert entry.environment == EnvironmentStore(file.parent / "environments").place(entry.definition)
    assert (entry.command, entry.env, entry.programs) == (("run",), {"A": "b"}, {"/sbin/x": ("y",)})


def test_images_file_refers_to_environments_by_name(file: Path) -> None:
    (file.parent / "environments.yaml").write_text(OWN)
    file.write_text("images: [{image: mine, environment: own, env: {A: c}, user: 5}]")
    entry = catalogue_of(file).find("mine")
    assert entry is not None
    assert entry.definition is not None
    assert (entry.definition.name, entry.env, entry.user) == ("own", {"A": "c"}, 5)
    file.write_text("images: [{image: mine, environment: owm}]")
    with pytest.raises(ImagesFileError, match=r"images\[0\]\.environment: no environment is named 'owm'; did you mean own\?"):
        catalogue_of(file).find("mine")


def test_own_installation_runs_images_whose_packages_it_has(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definitions, "_is_installed", lambda name: name != "trl")
    entry = catalogue_of(file).find("pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime")
    assert entry is not None
    assert entry.environment is not None
    assert not entry.knows_user
    monkeypatch.setattr(definitions, "_is_installed", lambda _: True)
    assert catalogue_of(file).find("pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime") is None


def test_invalid_environments_keep_all_containers_waiting(file: Path) -> None:
    (file.parent / "environments.yaml").write_text("environments: [{name: own}]")
    with pytest.raises(ConfigError, match=r"environments\.yaml: environments\[0\]\.requirements: Field required"):
        catalogue_of(file).find("pytorch/pytorch")
