"""The two towers, their loss and their optimizers. Knows neither data files nor configuration."""
