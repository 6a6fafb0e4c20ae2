"""Trainings that no law was fitted to: what the default and its rivals end with on kinds that the table of trainings has not.

The list was committed before the law was chosen that it judges:

    adapters       LoRA on a language model of words, from one text to another; AdamW
    VAE            convolutions and their transposes, Fashion-MNIST; Adam
    graph          attention between neighbours, on a graph of short texts that are alike; Adam
    noise          a U-Net that predicts the noise in small CIFAR-10 pictures; AdamW
    MNIST CNN      two convolutions, dropout and two layers, as in PyTorch's examples; SGD with momentum
    GPT, small     words of Penn Treebank, 2 x 64; AdamW, clipping
    GPT, larger    the same, 4 x 192
    masked words   a transformer that fills in characters of Wikipedia; AdamW
    pictures x 2   a network that doubles the side of pictures, by convolutions and a shuffle; Adam
    coordinates    an MLP on Fourier features that learns one picture by heart, judged between its pixels; Adam
    points         digits as sets of points, PointNet; Adam
    rows           a GRU that reads pictures row by row; SGD with momentum, clipping
    ConvNeXt       CIFAR-100 with mixup; AdamW

Each has examples for training, for choosing (validation) and for judging (test). Errors are shares of wrong answers where there are
answers, else losses.

python -m lab.studies.judge prepare FOLDER    the data, from the lab's sets, as small files
python -m lab.studies.judge run FOLDER OUT    train; what is done is kept

`experiments.judge` makes the table of results/judge/runs.jsonl.gz, which is OUT, packed by gzip.
"""
