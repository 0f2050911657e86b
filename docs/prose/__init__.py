"""The linter of prose. rules.toml has its phrases, known.txt the findings from before it, allowed.txt the exceptions."""
