"""The Kubernetes API that Trainwright uses: kinds, label keys, conditions, schemas, defaults and admission rules.

Objects are plain dicts; everything here is a function on dicts. This package imports no other package of the project, and nothing when
it is imported: programs in environments without our dependencies read its names.
"""
