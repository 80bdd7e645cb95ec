"""The reproduction of the paper, its report, further studies and benchmarks."""
