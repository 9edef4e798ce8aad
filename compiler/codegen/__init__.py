"""Loops to text: c/ for both, cpu/, cuda/."""
