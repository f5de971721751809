"""`python -m cometmq` is the command `cometmq`."""

from cometmq.cli.main import main

if __name__ == "__main__":
    main()
