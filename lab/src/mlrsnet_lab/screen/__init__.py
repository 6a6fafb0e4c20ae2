"""The lab on a terminal: progress bars, tables, and where the results are. Nothing is decided here; a file for each command."""
