"""How much memory a training needs, estimated from the size of its model and its settings before a job is submitted."""
