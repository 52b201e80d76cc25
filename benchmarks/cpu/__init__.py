"""NNL on a CPU beside PyTorch, nnabla and ONNX Runtime: whole training steps, and inference."""
