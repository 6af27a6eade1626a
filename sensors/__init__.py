"""One module a trigger: reads a summary, requests a run, says why not."""
