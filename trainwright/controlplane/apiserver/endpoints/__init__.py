"""Resources that are computed instead of stored: reviews, token requests, definitions, progress reports."""
