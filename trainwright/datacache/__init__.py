"""The data cache of an embedded cluster: a table in the memory of a few pods, which a training reads through Arrow Flight.

It takes the place of Trainer's cache and speaks its protocol. `reader` is for trainings; `head` and `worker` are the programs of
the cache, in the environment `data-cache`. Nothing is imported here: pyarrow and pyiceberg are only there.
"""
