"""Schedule files: storage, lookup by name, the Hugging Face Hub, and the authors' checkpoints."""
