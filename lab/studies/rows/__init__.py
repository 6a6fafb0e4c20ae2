"""Small real tables, seen many times: what the default's law costs where it was not fitted.

python -m lab.studies.rows FILE     trains small MLPs on them under the columns of `mlrsnet table fill`, into one more table
"""
