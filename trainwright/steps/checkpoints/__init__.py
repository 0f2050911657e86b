"""Steps that deal with the exports of a run, and the files of their evaluations."""
