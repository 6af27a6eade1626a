"""Ids made of a row's content, for files that have none: equal rows are one row, whatever file they came in."""

from __future__ import annotations

from collections.abc import Mapping

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from mlcost_pipeline.sources.convert import as_text

_NULL, _END = "\x00", "\x1f"


def content_ids(columns: Mapping[str, pa.Array]) -> pa.Array:
    """128 bits of SHA-256 over the texts of the given columns, in the given order, as 32 hex digits a row."""
    texts = [pc.fill_null(as_text(array), _NULL) for array in columns.values()]
    joined = pc.binary_join_element_wise(*texts, _END)
    with duckdb.connect() as connection:
        connection.register("incoming", pa.table({"content": joined}))
        hashed = connection.sql("SELECT substr(sha256(content), 1, 32) AS id FROM incoming").to_arrow_table()
    ids = hashed.column("id").combine_chunks()
    return pa.concat_arrays(ids.chunks) if isinstance(ids, pa.ChunkedArray) else ids
