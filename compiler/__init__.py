"""See the README of the project."""
