"""Day one: a team has a bill and nothing else. What of it can be attributed already, by what, and what is missing."""
