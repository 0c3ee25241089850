"""The Python side names what the C headers name."""

import ctypes
import os
import pickle
import re
import unittest

import isoc
from isoc import _native
from isoc.keys import _Keys

from support import ROOT


def text(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


class Headers(unittest.TestCase):
    def test_statuses(self):
        listed = re.findall(r'^X\((\w+), (\d+), "(.*)"\)', text("runtime", "status.def"), re.M)
        self.assertEqual([(s.name, s.value) for s in isoc.Status],
                         [(name, int(value)) for name, value, _ in listed])
        for _, value, sentence in listed:
            self.assertEqual(_native.lib.iso_status_string(int(value)).decode(), sentence)

    def test_functions_and_their_parameter_counts(self):
        header = re.sub(r"/\*.*?\*/", "", text("runtime", "iso.h"), flags=re.S)
        declared = re.findall(r"^(?:iso_status|const char \*|void) ?(iso_\w+)\((.*?)\);", header,
                              re.M | re.S)
        counts = {name: 0 if parameters == "void" else parameters.count(",") + 1
                  for name, parameters in declared}
        self.assertEqual(counts.pop("iso_module_unload"), 1)
        self.assertEqual({**_native.CALLS, **_native.TEXTS}.keys(), counts.keys())
        for name, types in {**_native.CALLS, **_native.TEXTS}.items():
            self.assertEqual(len(types), counts[name], name)

    def test_structures_have_the_fields_of_the_header(self):
        header = re.sub(r"/\*.*?\*/", "", text("runtime", "iso.h"), flags=re.S)
        for name, structure in (("iso_config", _native.Config), ("iso_layout", _native.Layout),
                                ("iso_tensor", _native.Tensor), ("iso_run", _native.Run),
                                ("iso_keys", _Keys)):
            body = re.search(r"typedef struct %s \{(.*?)\} %s;" % (name, name), header, re.S)[1]
            fields = re.findall(r"(\w+)(?:\[\w+\])?;", body)
            self.assertEqual([field for field, _ in structure._fields_], fields)
        self.assertEqual(_native.TENSOR.size, ctypes.sizeof(_native.Tensor))

    def test_version(self):
        self.assertIn(f'#define ISO_VERSION "{isoc.__version__}"', text("runtime", "iso.h"))

    def test_errors_travel_between_processes(self):
        error = pickle.loads(pickle.dumps(isoc.IsoError(14, "a sentence", "a detail")))
        self.assertEqual((error.status, error.sentence, error.detail, str(error)),
                         (isoc.Status.BAD_TENSOR, "a sentence", "a detail",
                          "BAD_TENSOR: a detail"))


if __name__ == "__main__":
    unittest.main()
