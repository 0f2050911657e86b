"""The three ways to patch JSON: JSON patch, JSON merge patch and strategic merge patch."""
