"""Names of images: which are valid, in the words of a kubelet, and what they mean when they say no tag. Pure.

Sources: github.com/distribution/reference, opencontainers/go-digest, and pkg/util/parsers of Kubernetes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

LATEST = "latest"
_DOCKER_HUB, _OFFICIAL = "docker.io", "library/"
_HUB_DOMAINS = (_DOCKER_HUB, "index.docker.io")

_LABEL = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_DOMAIN = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_COMPONENT = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_PATH = rf"{_COMPONENT}(?:/{_COMPONENT})*"
_TAG = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_ALGORITHM = r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*"
_REFERENCE = re.compile(
    rf"(?P<domain>{_DOMAIN})/(?P<path>{_PATH})(?::(?P<tag>{_TAG}))?(?:@(?P<digest>{_ALGORITHM}:[0-9a-fA-F]{{32,}}))?"
)
_IDENTIFIER = re.compile(r"[a-f0-9]{64}")
_HEX_DIGITS = {"sha256": 64, "sha384": 96, "sha512": 128}
_GO_DIGEST = re.compile(r"[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[a-zA-Z0-9=_-]+")
_LONGEST_PATH = 255


class InvalidReference(ValueError):
    """The name of an image is invalid; the message is that of distribution/reference."""


@dataclass(frozen=True)
class ImageReference:
    """The parts of an image's name in full: `ubuntu` is `docker.io`, `library/ubuntu`. `tag` and `digest` are empty if not said."""

    domain: str
    path: str
    tag: str = ""
    digest: str = ""

    @property
    def name(self) -> str:
        return f"{self.domain}/{self.path}"


def parse_reference(image: str) -> ImageReference:
    """Parse the name of an image as `docker pull` takes it. Raises InvalidReference."""
    if _IDENTIFIER.fullmatch(image):
        raise InvalidReference(f"invalid repository name ({image}), cannot specify 64-byte hexadecimal strings")
    domain, rest = _split_domain(image)
    name = rest.partition(":")[0]
    if name.lower() != name:
        raise InvalidReference(f"invalid reference format: repository name ({name}) must be lowercase")
    match = _REFERENCE.fullmatch(f"{domain}/{rest}")
    if match is None:
        raise InvalidReference("invalid reference format")
    if len(match["path"]) > _LONGEST_PATH:
        raise InvalidReference(f"repository name must not be more than {_LONGEST_PATH} characters")
    _check_digest(match["digest"] or "")
    return ImageReference(match["domain"], match["path"], match["tag"] or "", match["digest"] or "")


def image_name_error(image: str) -> str:
    """Return why a kubelet refuses the name of an image (its reason is InvalidImageName), or an empty string."""
    try:
        parse_reference(image)
    except InvalidReference as error:
        return f'Failed to apply default image tag "{image}": couldn\'t parse image name "{image}": {error}'
    return ""


def default_pull_policy(image: str) -> str:
    """Return the imagePullPolicy of a container that names none: Always for the tag `latest`, also if it is not written."""
    try:
        reference = parse_reference(image)
    except InvalidReference:  # a kubelet refuses the name, whatever the policy
        return "IfNotPresent"
    is_latest = reference.tag == LATEST or not (reference.tag or reference.digest)
    return "Always" if is_latest else "IfNotPresent"


def _split_domain(image: str) -> tuple[str, str]:
    """The first part is a domain only if it cannot be a part of a path: it has a dot, a port, or upper case, or is localhost."""
    first, slash, rest = image.partition("/")
    if not slash:
        return _DOCKER_HUB, _OFFICIAL + image
    if first == "localhost" or any(mark in first for mark in ".:") or first.lower() != first:
        domain, remainder = first, rest
    else:
        domain, remainder = _DOCKER_HUB, image
    if domain in _HUB_DOMAINS:
        domain, remainder = _DOCKER_HUB, remainder if "/" in remainder else _OFFICIAL + remainder
    return domain, remainder


def _check_digest(digest: str) -> None:
    if not digest:
        return  # by tag only
    algorithm, _, digits = digest.partition(":")
    if algorithm not in _HEX_DIGITS:
        is_well_formed = _GO_DIGEST.fullmatch(digest) is not None
        raise InvalidReference("unsupported digest algorithm" if is_well_formed else "invalid checksum digest format")
    if len(digits) != _HEX_DIGITS[algorithm]:
        raise InvalidReference("invalid checksum digest length")
    if digits.lower() != digits:
        raise InvalidReference("invalid checksum digest format")
