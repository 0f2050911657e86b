"""Server-side apply: which manager owns which field of an object, and what follows from it."""
