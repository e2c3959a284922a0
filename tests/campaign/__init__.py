"""A campaign against the command: kills, flipped bits, full disks, signals and bad input, by the hundred.

Run it with ``make campaign``, or a part of it with ``make campaign CAMPAIGN="inputs --sample 50"``. Every try is a
process of its own, forked from one that has imported everything, so that a crash or a hang is a
result like any other.
"""
