"""Tools of the developers, run by hand."""
