"""What machine learning costs, and what it earns for that cost."""

__version__ = "0.1.0"
