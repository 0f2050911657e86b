"""The quickstart: a small invented world, a small model that speaks of it, and a picture of the model learning to answer.
Everything here is made on the spot from text in this folder, so that a first fine-tune needs neither a network nor a GPU.
"""
