"""The program of a training step: the source and the arguments of a function, and packed folders of code."""
