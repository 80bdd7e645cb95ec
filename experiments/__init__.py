"""What the project shows: each experiment reads configs, runs the command line, and writes what it found."""
