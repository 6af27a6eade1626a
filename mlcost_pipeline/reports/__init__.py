"""Reports: one document model, shown as plain metadata, in the terminal and as one HTML file."""
