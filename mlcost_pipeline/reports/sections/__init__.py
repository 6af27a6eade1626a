"""Sections of the main report, each read from the warehouse alone."""
