"""The numbers and pictures of the documents, made from `results/`: one file per finding, named after what it shows.

    python -m experiments tables     tables between `<!-- made: -->` comments, and results/report.md
    python -m experiments pictures   docs/pictures
    python -m experiments all        both
    python -m experiments report-page  docs/pictures/report.png, with chromium

Nothing here measures anything: recipes of the lab, `benchmarks/` and `tools/` do.
"""
