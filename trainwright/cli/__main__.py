"""`python -m trainwright.cli`, and the console script `trainwright`."""

from trainwright.cli.app import app


def main() -> None:
    app()


if __name__ == "__main__":
    main()
