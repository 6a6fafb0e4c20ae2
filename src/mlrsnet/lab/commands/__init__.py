"""The commands that need the lab: one per file, with its options. `mlrsnet.cli` lists them, and loads one when it is called."""
