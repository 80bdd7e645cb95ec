"""Training: the objective, the step, the loop around it, Gramian errors, and what a run needs of memory."""
