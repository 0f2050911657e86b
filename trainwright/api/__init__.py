"""The Kubernetes API that Trainwright uses: kinds, label keys, conditions, schemas, defaults and admission rules.

Objects are plain dicts; everything here is a function on dicts. This package imports no other package of the project.
"""

from trainwright.api.admission.admit import AdmissionContext, Admitted, admit
from trainwright.api.objects import Obj

__all__ = ["AdmissionContext", "Admitted", "Obj", "admit"]
