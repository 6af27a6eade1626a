"""Reports of what was read in, and of the features made from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcost_pipeline.reports.document import Document, Number, Table
from mlcost_pipeline.reports.dress import share_of, stage_report
from mlcost_pipeline.reports.values import Cell, Quantity, show

if TYPE_CHECKING:
    from mlcost_pipeline.models.features import FeatureSet
    from mlcost_pipeline.settings import Settings
    from mlcost_pipeline.sources.ingest import Ingested


def ingest_report(read: Ingested, settings: Settings) -> Document:
    """What one read of one table's files took over, and what it left out and why."""
    dropped = sum(read.rows_dropped.values())
    rows: list[list[Cell]] = [["stored", read.rows_new, Quantity(share_of(read.rows_new, read.rows_read), "share")]]
    for reason, count in sorted(read.rows_dropped.items(), key=lambda entry: (-entry[1], entry[0])):
        rows.append([f"left out: {reason}", count, Quantity(share_of(count, read.rows_read), "share")])
    doc = Document(
        title=f"Read: {read.table}",
        summary=" ".join(read.sentence.split()).rstrip(".") + ".",
        numbers=[
            Number("rows_new", "rows stored", read.rows_new),
            Number("rows_read", "rows read", read.rows_read, bound="stored and left out together"),
            Number("rows_dropped", "rows left out", dropped),
            Number("files", "files read", read.files),
            Number("files_known", "files known already", read.files_known),
            Number("files_waiting", "files not complete yet", read.files_waiting),
        ],
        tables=[
            Table("Rows", ["what", "rows", "of those read"], rows if read.rows_read else [], empty="no row was read")
        ],
    )
    return stage_report(doc, settings)


def features_report(made: FeatureSet, settings: Settings) -> Document:
    """What a training as of a day would see, and where time was cut."""
    block, cuts = settings.model(made.model), made.cuts
    positives = "" if made.positives is None else f", {made.positives} of them positive"
    rows: list[list[Cell]] = [
        ["training rows end before", cuts.training_cut],
        ["held-out rows end before", cuts.holdout_end],
        ["nothing is known from", cuts.data_cut],
        ["days of training", block.windows.training_days],
        ["days held out", block.windows.holdout_days],
        ["days for labels to mature", block.windows.label_delay_days],
    ]
    doc = Document(
        title=f"Features of {made.model}",
        summary=(
            f"{made.model} as of {made.as_of}: {made.rows} rows{positives}, {made.training_rows} to train on; "
            f"training sees what happened before "
            f"{show(cuts.training_cut)} UTC, and nothing known at {show(cuts.data_cut)} UTC or later."
        ),
        numbers=[
            Number("rows", "rows", made.rows),
            Number("training_rows", "rows before the training cut", made.training_rows),
            *([] if made.positives is None else [Number("positives", "positive rows", made.positives)]),
            Number("rows_dropped", "rows left out", sum(made.dropped.values())),
            Number("training_days", "days of training", block.windows.training_days),
            Number("holdout_days", "days held out", block.windows.holdout_days),
        ],
        tables=[
            Table("Cuts in time (UTC)", ["what", "value"], rows),
            Table(
                "Left out",
                ["why", "rows"],
                [[why, count] for why, count in sorted(made.dropped.items())],
                empty="nothing was left out",
            ),
        ],
        links={"features": str(made.folder)},
        ids={"data_version": made.data_version},
    )
    return stage_report(doc, settings, model=made.model)
