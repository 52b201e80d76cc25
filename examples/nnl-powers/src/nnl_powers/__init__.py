"""Integer powers as an operator of NNL."""
