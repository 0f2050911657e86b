"""A scene: what the cluster must have, what a person does through a public surface, and what must come of it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from acceptance.told import Told

if TYPE_CHECKING:
    from acceptance.stage import Stage

SEEN = "the person saw:"
"""Begins the note about the command of a failed check."""
Mark = Literal["quick", "long"]
Check = Callable[["Stage", Told], None]
Action = Callable[["Stage"], Told]


@dataclass(frozen=True)
class Scene:
    """One scene. Texts may have `{name}`, `{namespace}`, `{folder}`, `{launcher}` and `{trainer}` in them; see `Stage.text`.

    Attributes:
        name: A sentence's worth of words; unique in its group.
        act: What the person does, through the command line, a component, an operator or kubectl.
        check: What must come of it: objects, files, the text that the person sees.
        marks: `quick` is played by CI on the embedded cluster, `long` takes minutes.
        needs: Means that the cluster must have: names in `acceptance.means.MEANS`. Without one the scene is skipped.
        objects: Manifests that the administrator applies before.
        files: Files in `{folder}`, by name.
        own_namespace: Whether it is played in a namespace of its own, because it changes what others would notice.
        labels: Labels of that namespace.
        alone: Whether no other scene may be played on the cluster meanwhile, because it would notice.
        fault: A fault of the product, in one sentence: the scene is expected to fail until it is gone.
    """

    name: str
    act: Action
    check: Check | tuple[Check, ...]
    marks: tuple[Mark, ...] = ()
    needs: tuple[str, ...] = ()
    objects: tuple[Mapping[str, Any], ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    own_namespace: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    alone: bool = False
    fault: str = ""

    @property
    def slug(self) -> str:
        """The name of its run and of its objects: a DNS label that begins no other scene's."""
        words = re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")
        return f"{words[:24].strip('-')}-{hashlib.sha256(self.name.encode()).hexdigest()[:4]}"

    def play(self, stage: Stage) -> None:
        """Set up, act and check. Raises AssertionError with what was seen if something else came of it."""
        for name, text in self.files.items():
            stage.write(name, stage.text(text))
        if self.objects:
            stage.apply(*(stage.manifest(obj) for obj in self.objects))
        told = self.act(stage)
        for check in self.check if isinstance(self.check, tuple) else (self.check,):
            try:
                check(stage, told)
            except AssertionError as error:
                error.add_note(f"{SEEN}\n{told}")
                raise
