"""Chaos: processes contend for a few keys while a seeded injector breaks things, and a checker judges.

python -m tests.chaos --database postgresql --seconds 60 --seed 1
"""
