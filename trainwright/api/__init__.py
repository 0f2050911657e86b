"""The Kubernetes API that Trainwright uses: kinds, label keys, conditions, schemas, defaults and admission rules.

Objects are plain dicts; everything here is a function on dicts. This package imports no other package of the project. Its own modules
are imported lazily (PEP 562), because programs in environments without our dependencies read its names.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainwright.api.admission.admit import AdmissionContext, Admitted, admit
    from trainwright.api.objects import Obj

__all__ = ["AdmissionContext", "Admitted", "Obj", "admit"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("trainwright.api.objects" if name == "Obj" else "trainwright.api.admission.admit"), name)
