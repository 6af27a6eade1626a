"""Models: each family starts, steps and scores; none knows checkpoints, clocks or money."""
