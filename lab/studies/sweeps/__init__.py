"""Other people's learning-rate sweeps as evidence for the default's law.

python -m lab.studies.sweeps FOLDER     reads the tables in FOLDER, writes results/sweeps/fits.json

Every source has a module, whose docstring says how its LRs become relative steps and what that assumes. It was committed before a
law was fitted to that source. `cells` is what all of them give, `fits` what is asked of them, `pictures` draws the records.
"""
