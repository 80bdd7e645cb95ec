"""`make reproduce`: plans, runs, and one module for each figure or table of the report."""
