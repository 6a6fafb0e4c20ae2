"""What `MetaTrainer` is made of: the mathematics of Algorithm 1, its arguments, and the authors' departures from it."""
