"""One policy per file. Their order is defined in `trainwright.materialize.assembly`."""
