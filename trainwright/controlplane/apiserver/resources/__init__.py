"""The resources that the server serves, and the URL paths that name them."""
