"""Readers of packed samples side by side: exactness over kills and other world sizes, speed, dependencies."""
