"""A store beside a dict, under steps that hypothesis draws, in a program that is killed meanwhile.

``PERDURA_EXAMPLES=200`` runs more; a failure prints the steps that lead to it.
"""

import os
import shutil
import tempfile
import unittest

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import perdura
from programs import Program

KEYS = st.sampled_from([b"", b"a", b"b", b"ab", b"\x00", b"k" * 300])
VALUES = st.one_of(st.binary(max_size=40), st.sampled_from([b"v" * 5000, b""]))
EXAMPLES = int(os.environ.get("PERDURA_EXAMPLES", "5"))


class Machine(RuleBasedStateMachine):
    """The model is a dict; a step that a kill cuts in the middle is whole or absent."""

    #: How the program opens the store. The planted bug is a store that nothing keeps.
    options = {}

    @initialize()
    def start(self):
        self.place = tempfile.mkdtemp()
        self.model = {}
        self.program = Program(self.place + "/data", **self.options)

    @rule(key=KEYS, value=VALUES)
    def set(self, key, value):
        self.program.ask(f"store[{key!r}] = {value!r}")
        self.model[key] = value

    @rule(key=KEYS)
    def pop(self, key):
        found = self.program.ask(f"result = store.pop({key!r}, None)")
        assert found == self.model.pop(key, None)

    @rule(key=KEYS, value=VALUES)
    def setdefault(self, key, value):
        found = self.program.ask(f"result = store.setdefault({key!r}, {value!r})")
        assert found == self.model.setdefault(key, value)

    @rule(pairs=st.dictionaries(KEYS, VALUES, max_size=4), fails=st.booleans())
    def transaction(self, pairs, fails):
        code = (
            "try:\n"
            "    with store.transaction() as tx:\n"
            f"        tx.update({pairs!r})\n"
            f"        if {fails}: raise LookupError\n"
            "except LookupError: pass\n"
        )
        self.program.ask(code)
        if not fails:
            self.model.update(pairs)

    @rule()
    def clear(self):
        self.program.ask("store.clear()")
        self.model.clear()

    @rule()
    def popitem(self):
        if self.model:
            first = min(self.model)
            expected = (first, self.model.pop(first))
            assert self.program.ask("result = store.popitem()") == expected

    @rule()
    def kill_between_steps(self):
        self.program.kill()
        self.program = Program(self.place + "/data", **self.options)

    @rule(pairs=st.dictionaries(KEYS, VALUES, min_size=2, max_size=4), many=st.integers(1, 30))
    def kill_within_steps(self, pairs, many):
        """Updates that count themselves, without a look at the answers, are cut by a kill."""
        for number in range(many):
            counted = {**pairs, b"count": b"%d" % number}
            self.program.tell(f"store.update({counted!r})")
            if number == many // 2:
                self.program.answer()
        answered = len(self.program.kill()) + 1
        self.program = Program(self.place + "/data", **self.options)
        count = int(self.program.ask("result = store.pop(b'count')"))
        # One more may have been done without its answer.
        assert answered - 1 <= count <= answered, f"{answered} answered, {count} counted"
        self.model.update(pairs)

    @invariant()
    def is_as_the_model(self):
        if hasattr(self, "program"):
            found = self.program.ask("result = (list(store.items()), len(store))")
            assert found == (sorted(self.model.items()), len(self.model))

    def teardown(self):
        if hasattr(self, "program"):
            self.program.kill()
            # The holder ends with its memory.
            perdura.Store.open(self.place + "/data").close()
            shutil.rmtree(self.place)


class Unkept(Machine):
    """A planted bug: without a holder nothing keeps what is in memory."""

    options = {"holder": False, "durability": "warned", "checkpoint_every": None}


def limits(**more):
    return settings(
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
        database=None,
        **more,
    )


class States(unittest.TestCase):
    def test_a_store_is_a_dict_that_survives_kills(self):
        case = Machine.TestCase()
        case.settings = limits(max_examples=EXAMPLES, stateful_step_count=20)
        case.runTest()

    def test_the_machine_sees_a_store_that_loses_what_it_acknowledged(self):
        case = Unkept.TestCase()
        case.settings = limits(max_examples=30, stateful_step_count=20, phases=[Phase.generate])
        with self.assertRaises((AssertionError, KeyError, SyntaxError)):
            case.runTest()


if __name__ == "__main__":
    unittest.main()
