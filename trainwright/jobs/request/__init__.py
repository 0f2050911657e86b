"""The request of a training step, and the TrainJob manifest built from it. Pure, apart from reading code and git."""
