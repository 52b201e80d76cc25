"""Built-in plugins of a training run, active where a project names them."""
