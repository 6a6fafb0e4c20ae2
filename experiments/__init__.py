"""The numbers and pictures of the documents, made from `results/`: one file per finding, named after what it shows.

    python -m experiments tables     tables between `<!-- made: -->` comments, and results/report.md
    python -m experiments pictures   docs/pictures
    python -m experiments all        both
    python -m experiments report-page  docs/pictures/report.png, with chromium

Four files also measure what a training of the lab does not: `python -m experiments.universal_lstm_variants --help`, and so on.
"""
