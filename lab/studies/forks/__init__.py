"""Feedback: can what is seen of a training say whether longer or shorter steps would end better, beyond what is known before it?

Trainings are forked at 2, 5, 20 and 50 % of their steps. A fork goes on with half or twice the LR of the plan, and everything else
the same, random numbers too. Sensors are kept at the fork. From them a policy is fitted, which is judged on families of trainings
that it was not fitted to, and then steers fresh trainings of those families, within factors of 1/4 and 4 in all.

python -m lab.studies.forks fill FOLDER OUT      trainings and their forks, rows 1000 to 1300; what is done is kept
python -m lab.studies.forks fit                  which fork is better, foretold from facts and from sensors
python -m lab.studies.forks policy FOLDER OUT    rows 1400 to 1584 under policies that have not seen their families
python -m lab.studies.forks layers FOLDER OUT    rows 1300 to 1346 under one ratio for all matrices, or one for each
python -m lab.studies.forks judge                what policies and ratios gained

FOLDER is that of `python -m lab.studies.law prepare`. `fit`, `policy` and `judge` read results/forks, where table.jsonl.gz,
policy.jsonl.gz and layers.jsonl.gz are the OUT of the commands, packed by gzip. `fit` writes fits.json there, `judge` judged.json.
"""
