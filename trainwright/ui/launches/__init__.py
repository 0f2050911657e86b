"""Fine-tunings that were started on the page: each is a process of its own, which survives the page, and can be resumed."""
