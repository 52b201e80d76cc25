"""NNL on a GPU beside PyTorch on the same GPU: kernels, products, training steps, launches."""
