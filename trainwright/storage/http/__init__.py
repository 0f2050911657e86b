"""Downloads over http(s) by urllib3: redirects without leaking a token, retries, and files that are resumed and verified."""
