"""One tree of exceptions: whatever this project raises on purpose is a MlcostError.

MlcostError
├── SettingsError        mlcost.yaml: names the field's path, what was found, what is allowed
├── SourceError          an input file: names the file, the row and the column
├── SchemaError          rows that break a table's schema: names the table, the row and the column
├── WarehouseError       the warehouse itself: wrong version, missing part, damaged file
│   └── StateConflict    a compare-and-swap lost against another writer
├── BillError            a billing export that cannot be taken over as it is
│   └── Unreconciled     parts and bill differ; no report is made of such a period
├── JobError             a training job or one of its attempts
│   └── CheckpointError  a checkpoint that must not be resumed from
├── ModelError           a model artefact or family that cannot be loaded or used
├── PublicationError     a version of the lists that must not go live
└── NothingCompared      a check that compared nothing: it fails instead of passing
"""

from __future__ import annotations


class MlcostError(Exception):
    """Base of every error that this project raises on purpose; its text is meant for a person."""


class SettingsError(MlcostError):
    """mlcost.yaml is not usable as it stands."""


class SourceError(MlcostError):
    """An input file or folder cannot be read as its mapping says."""


class SchemaError(MlcostError):
    """Rows do not fit their table."""


class WarehouseError(MlcostError):
    """The warehouse cannot be read or written safely."""


class StateConflict(WarehouseError):
    """Somebody else changed a state object first."""


class BillError(MlcostError):
    """A billing export is refused; what was in force stays in force."""


class Unreconciled(BillError):
    """The parts of a bill do not add up to the bill."""


class JobError(MlcostError):
    """A training job cannot go on."""


class CheckpointError(JobError):
    """A checkpoint is damaged, incomplete or of another configuration."""


class ModelError(MlcostError):
    """A model artefact or family cannot be used."""


class PublicationError(MlcostError):
    """A version of the lists failed its validation."""


class NothingCompared(MlcostError):
    """A check had nothing to compare and therefore cannot pass."""
