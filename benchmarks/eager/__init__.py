"""Dynamic graphs of small operators, NNL beside its peers."""
