"""One policy a file; their order stands in `trainwright.materialize.assembly`."""
