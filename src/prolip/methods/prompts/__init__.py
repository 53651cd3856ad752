"""Prompt tuning: context words that are learned, for each class name to stand in.

words.py        prompts with slots, and what fills them at the start
fitted.py       what the methods end in
coop.py         CoOp, which the next two build on; kgcoop.py, prograd.py
cocoop.py       context that depends on the image
plot.py         several prompts a class, matched to places in the picture
maple.py        prompts in both towers; coupling.py holds them as a module

Files of methods import without torch; what needs it is imported where it is used.
"""
