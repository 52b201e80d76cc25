"""Emitters, one module for each family of operators; all of them are imported when first needed."""
