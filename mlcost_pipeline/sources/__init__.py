"""Input that nobody here wrote: files read whole or not at all, mapped to the tables of the warehouse."""
