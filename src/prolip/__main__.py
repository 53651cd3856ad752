"""What `python -m prolip` and the command `prolip` start."""

import sys


def main() -> None:
    """Run the command line."""
    try:
        from prolip.cli import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
