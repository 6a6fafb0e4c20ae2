"""Files of the lab: archives of arrays from strangers, and files that notice when they are damaged."""
