"""The names that servers know locks by, frozen: programs of other releases hold locks under them.

There is no switch that writes the file anew. A name that differs from it needs a new naming.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sqllocks.naming import NAMINGS, advisory_id, lock_name

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "naming.json").read_text())
# what the Go package answers
DLOCK = [
    ("", "foo", -8154808433450144946),
    ("", "myservice-cron", -515104603554487578),
    ("app1/", "leader", -4742950001699390807),
    ("app2/", "leader", 7827045720849675242),
    ("", "锁", 3788329848949002310),
]
CHILD = """
import json, sys
from sqllocks.naming import advisory_id, lock_name
answers = []
for each in json.load(sys.stdin):
    place = {"prefix": each["prefix"], "naming": each["naming"]}
    name = lock_name(each["key"], database=each["database"], **place)
    answers.append([advisory_id(each["key"], **place), name])
json.dump(answers, sys.stdout)
"""


@pytest.mark.parametrize("naming", NAMINGS)
def test_names_are_as_frozen(naming: str) -> None:
    for vector in VECTORS:
        key, prefix, database = vector["key"], vector["prefix"], vector["database"]
        assert {
            "advisory_id": advisory_id(key, prefix=prefix, naming=naming),
            "lock_name": lock_name(key, prefix=prefix, naming=naming, database=database),
        } == vector[naming]


@pytest.mark.parametrize("naming", NAMINGS)
def test_the_frozen_names_show_what_may_go_wrong(naming: str) -> None:
    assert len(VECTORS) >= 40
    identifiers = [vector[naming]["advisory_id"] for vector in VECTORS]
    assert any(identifier < 0 for identifier in identifiers)
    assert any(identifier >= 0 for identifier in identifiers)
    keys = [vector["key"] for vector in VECTORS]
    assert any(len(key) == 255 for key in keys)
    assert any(ord(character) > 0xFFFF for key in keys for character in key)


def test_a_name_is_what_any_language_computes_from_the_same_text() -> None:
    advisory = hashlib.sha256("sqllocks:1:advisory:1:Ä6:leader".encode()).digest()[:8]
    identifier = advisory_id("leader", prefix="Ä", naming="sha256")
    assert identifier == int.from_bytes(advisory, "big", signed=True)
    name = hashlib.sha256("sqllocks:1:name:3:app1:Ä6:leader".encode()).hexdigest()[:32]
    assert lock_name("leader", prefix="Ä", naming="sha256", database="app") == f"sqllocks1:leader:{name}"


@pytest.mark.parametrize(("prefix", "key", "identifier"), DLOCK)
def test_fnv1a64_is_what_dlock_computes(prefix: str, key: str, identifier: int) -> None:
    assert advisory_id(key, prefix=prefix, naming="fnv1a64") == identifier


def test_fnv1a64_shortens_what_dlock_shortens() -> None:
    def name(key: str) -> str:
        return lock_name(key, prefix="", naming="fnv1a64", database="any")

    assert name("x" * 51) == "beauty:dlock:" + "x" * 51
    assert name("x" * 100) == "0a2f62d06b57ebb6"
    # bytes count, not characters
    assert name("é" * 25) == "beauty:dlock:" + "é" * 25
    assert len(name("é" * 26)) == 16


@pytest.mark.parametrize("seed", ["0", "4711"])
def test_processes_with_other_hash_seeds_agree(seed: str) -> None:
    asked = [{**vector, "naming": naming} for vector in VECTORS for naming in NAMINGS]
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": seed},
    )
    frozen = [vector[naming] for vector in VECTORS for naming in NAMINGS]
    assert json.loads(done.stdout) == [[each["advisory_id"], each["lock_name"]] for each in frozen]
