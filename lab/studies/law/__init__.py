"""Which size of step small trainings want: a table of trainings of many kinds, and laws fitted to it.

python -m lab.studies.law prepare FOLDER      the data, from the lab's sets, as small files
python -m lab.studies.law fill FOLDER OUT     train; what is done is kept
python -m lab.studies.law fit                 laws, judged on families that they were not fitted to; one LR for all
python -m lab.studies.law.on_gpu FOLDER resnet|gpt OUT.json     scales of the law on larger networks

`fit` reads results/law/table.jsonl.gz, which is OUT, packed by gzip.
"""
