"""What `python -m prolip` and the command `prolip` start."""

from prolip.cli import main

if __name__ == "__main__":
    main()
