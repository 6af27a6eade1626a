"""Bills, run records, the exact ledger that joins them, outcomes, and what one outcome costs."""
