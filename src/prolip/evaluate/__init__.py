"""How good a model is, and what it may claim: metrics, calibration, outsiders, curves, protocols."""
