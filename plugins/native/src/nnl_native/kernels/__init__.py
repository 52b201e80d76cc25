"""Emitters by family of operators; importing this package registers all of them."""
