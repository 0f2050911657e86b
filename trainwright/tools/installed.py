"""Whether this very environment has the packages that a tool needs: so an image, or a site without a network, brings tools along."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from trainwright.tools.errors import BadToolInput


def parse_requirements(requirements: Iterable[str]) -> list[Requirement]:
    """Return the requirements. Raises BadToolInput for one that is malformed."""
    parsed = []
    for text in requirements:
        try:
            parsed.append(Requirement(text))
        except InvalidRequirement as error:
            raise BadToolInput(f"{text!r} is not a requirement: {str(error).splitlines()[0]}") from None
    return parsed


def is_installed(requirement: Requirement) -> bool:
    """Whether this environment satisfies a requirement, with what its extras need. Dependencies of packages are not followed."""
    return _is_satisfied(requirement, set())


def _is_satisfied(requirement: Requirement, seen: set[tuple[str, frozenset[str]]]) -> bool:
    if requirement.marker is not None and not requirement.marker.evaluate():
        return True
    if requirement.url is not None:  # nothing says that the installed one is of that address
        return False
    key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
    if key in seen:
        return True
    seen.add(key)
    try:
        found = importlib.metadata.distribution(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return False
    if not requirement.specifier.contains(found.version, prereleases=True):
        return False
    provided = {canonicalize_name(extra) for extra in found.metadata.get_all("Provides-Extra") or ()}
    if not {canonicalize_name(extra) for extra in requirement.extras} <= provided:
        return False
    return all(_is_satisfied(needed, seen) for needed in _needed_by_extras(found, requirement.extras))


def _needed_by_extras(found: importlib.metadata.Distribution, extras: Iterable[str]) -> Iterable[Requirement]:
    for text in found.requires or ():
        needed = Requirement(text)
        marker = needed.marker
        if marker is None or marker.evaluate({"extra": ""}):  # of the package itself, which was installed with it
            continue
        if any(marker.evaluate({"extra": extra}) for extra in extras):
            needed.marker = None
            yield needed
