"""Single questions that are not part of the report."""
