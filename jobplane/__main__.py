"""The command `jobplane`, and `python -m jobplane`."""

from jobplane.program import run


def main() -> None:
    """Run the command line; the entry point of the `jobplane` script."""
    run("app.main.cli")


if __name__ == "__main__":
    main()
