"""Request options, bodies, media types, Tables, errors and limits."""
