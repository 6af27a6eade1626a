"""One module an asset group: read, call the library, write, report. No arithmetic here."""
