"""Built-in plugins of a training run. They are active where a project names them, like any other."""
