"""When to train on spot, on-demand or not yet; the supervisor of attempts; providers of capacity."""
