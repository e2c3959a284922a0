"""Hundreds of kills, flipped bits, full disks, signals and bad inputs against the command.

Run all parts with ``make campaign``, or one with ``make campaign CAMPAIGN="inputs --sample 50"``. Each try runs in a
fork of a process that has imported everything, so a crash or hang is an ordinary result.
"""
