"""What a user would pick instead, on the same data and the same evaluation."""
