"""Drills: break one thing in a real run, and check that what must happen does."""
