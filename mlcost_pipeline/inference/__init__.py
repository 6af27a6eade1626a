"""Batch scoring, publication by one pointer, lookups that fall back, and the HTTP service."""
