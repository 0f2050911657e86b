"""The served resources and their URL paths."""
