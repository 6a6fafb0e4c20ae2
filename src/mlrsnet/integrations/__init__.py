"""What frameworks need beyond `LearnedLR` itself, one file each: a name for Transformers, meta-training in Lightning."""
