"""Metrics, slices, intervals and the gate; versions of models and their promotion."""
