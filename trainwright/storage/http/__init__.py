"""Downloads over http(s) with the standard library alone: redirects without leaking a token, retries, ranges, verified files.

Measured beside obstore: fewer CPU seconds and a third of the memory, and the headers that retries and redirects depend on are visible.
"""
