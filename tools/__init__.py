"""Programs for those who work on the library: faults, fuzzing, walks, both cores in lockstep, thinner records."""
