"""What backends that compile have in common: C of expressions, and loops over elements."""
