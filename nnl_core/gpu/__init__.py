"""Backend ``cuda``: kernels in CUDA C++ through PyCUDA, programs as captured CUDA graphs."""
