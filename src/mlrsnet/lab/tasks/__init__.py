"""Data to train on."""
