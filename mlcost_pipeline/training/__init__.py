"""The loop that steps any model, checkpoints that can be trusted, and a resumable order of data."""
