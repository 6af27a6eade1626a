"""Readers of billing exports: one module a format, each turning files into the same exact lines."""
