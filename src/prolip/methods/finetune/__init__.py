"""Fine-tuning: parameters inside the towers themselves, by mini-batches of pictures.

base.py         the loop that all share
tuned.py        what the methods end in: changed tensors, by name, in the base model's place
full.py, last_layer.py, norm_tuning.py, clip_lora.py      which parameters each of them trains
lora_layers.py  the layers of clip_lora

Files of methods import without torch; what needs it is imported where it is used.
"""
