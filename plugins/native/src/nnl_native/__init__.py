"""The native CPU backend: generated C and oneDNN."""
