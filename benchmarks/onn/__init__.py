"""Operational layers in NNL beside FastONN's formulation of them in PyTorch."""
