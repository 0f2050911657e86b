"""The quickstart: a small fictional dataset, a small model pretrained on it, and commands that fine-tune the model.

Everything is generated from text in this folder, so that the first fine-tuning needs neither a network nor a GPU.
"""
