"""Run directories: written, opened, read back as frames and figures, with their checkpoints.

`gramrun.runs.load` gives what one run directory holds as pandas frames, `gramrun.runs.table` that of many.
"""

from gramrun.runs.frames import load, table

__all__ = ["load", "table"]
