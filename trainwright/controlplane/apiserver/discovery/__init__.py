"""Discovery, OpenAPI and health endpoints."""
