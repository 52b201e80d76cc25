"""The sections that the core itself puts into a report."""
