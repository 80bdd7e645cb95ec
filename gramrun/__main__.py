"""``python -m gramrun`` is the same as ``gramrun``."""

from gramrun.cli import main

if __name__ == "__main__":
    main()
