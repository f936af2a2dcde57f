"""How each question is run: by itself, or by `benchmarks.run` in a process of its own."""

from __future__ import annotations

import argparse
import gc
import json
import logging
import sys
import warnings
from collections.abc import Callable, Iterable

from benchmarks.contenders import Place
from benchmarks.turns import QUICK, Row, Settings
from tests.servers import fresh_database

Measure = Callable[[Place, Settings], Iterable[Row]]


def main(measure: Measure, about: str | None) -> None:
    """Measure on each server that was named, in a fresh database, and print the rows as JSON."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("servers", nargs="+", metavar="NAME=URL")
    parser.add_argument("--redis", metavar="URL")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # peers are not ours to mend
    logging.disable(logging.WARNING)
    gc.collect()
    gc.freeze()  # what is imported need not be looked through before each turn
    for each in arguments.servers:
        name, _, url = each.partition("=")
        print(f"{name}:", file=sys.stderr)
        with fresh_database(url) as database:
            place = Place(name, database.render_as_string(hide_password=False), arguments.redis)
            for row in measure(place, QUICK if arguments.quick else Settings()):
                print(json.dumps(row.as_json()), flush=True)  # at once, as there is a limit of time
