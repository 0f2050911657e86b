"""Steps that prepare the data and the models of a run."""
