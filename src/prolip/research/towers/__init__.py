"""Methods that train through a tower, and test-time adaptation."""

# Modules that register methods: `prolip.methods` imports them when one of their names is used.
MODULES = ("clip_lora", "cocoop", "coop", "fine_tuning", "maple", "plot")
