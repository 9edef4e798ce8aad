"""A plan in words, and as a picture."""
