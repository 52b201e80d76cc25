"""The measurements behind claims about speed and size: ``python -m benchmarks.run NAME``."""
