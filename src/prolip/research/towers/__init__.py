"""Methods that train through a tower, and test-time adaptation."""
