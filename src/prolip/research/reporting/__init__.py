"""What a run gave, as tables and figures."""
