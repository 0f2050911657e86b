"""How steps and runs end: the sentence of a failed step, jobs that are left, folders of earlier runs."""
