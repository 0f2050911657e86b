"""Evaluation of a fine-tuned model against its base model: the program that runs in a job, its summary and its loss curve."""
