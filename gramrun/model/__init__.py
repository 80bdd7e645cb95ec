"""The two towers, their loss and their optimizers. Knows no data files."""
