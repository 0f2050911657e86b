"""The vocabulary: kinds, label keys, conditions, defaults and the rules of admission.

Objects are plain dicts; everything here is a function on dicts. This floor imports nothing of ours.
"""

from trainwright.api.admission import AdmissionContext, Admitted, admit
from trainwright.api.objects import Obj

__all__ = ["AdmissionContext", "Admitted", "Obj", "admit"]
