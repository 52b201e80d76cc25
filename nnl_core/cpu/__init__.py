"""The NumPy backend: always there, and the meaning that other backends are checked against."""
