"""Attribution as SQL: slots in, parts of slots out, bucket by bucket, in exact integers."""
