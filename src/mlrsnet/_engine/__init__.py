"""Algorithm 2, one step at a time: from a loss to the LRs of an optimizer's parameter groups."""
