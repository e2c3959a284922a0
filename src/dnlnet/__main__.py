"""`python -m dnlnet`: the command, also for `torchrun -m dnlnet`."""

from dnlnet.cli.main import main

if __name__ == "__main__":
    main()
