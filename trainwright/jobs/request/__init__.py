"""A training step as it is requested, and the TrainJob manifest that it becomes. Pure, apart from reading code and git."""
