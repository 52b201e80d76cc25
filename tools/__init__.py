"""What developers of NNL use beside the package: nothing here is installed."""
