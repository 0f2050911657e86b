"""What crosses the connection: requests and their options, bodies, media types, Tables, errors and limits."""
