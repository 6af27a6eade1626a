"""Other Dagster instances, read over GraphQL: nothing is installed there, what they ran becomes run records here."""
