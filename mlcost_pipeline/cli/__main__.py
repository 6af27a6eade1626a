"""``python -m mlcost_pipeline.cli``: the command line without its script."""

from mlcost_pipeline.cli import main

main()
