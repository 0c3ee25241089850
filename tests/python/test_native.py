"""The Python side names what the C headers name."""

import ctypes
import os
import pickle
import re
import unittest

import isoc
from isoc import _native, group, model
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
        whole = {**_native.CALLS, **_native.TEXTS}
        self.assertEqual(self.compare("iso.h", whole), {"iso_module_unload"})
        some = {**_native.GROUP_CALLS, **_native.MODEL_CALLS, **_native.MODEL_TEXTS}
        self.assertLess({"iso_group_destroy", "iso_model_unload"},
                        self.compare("iso_group.h", some) | self.compare("iso_model.h", some))

    def compare(self, header, calls):
        """Parameter counts of the functions that are in both; the names of the others."""
        plain = re.sub(r"/\*.*?\*/", "", text("runtime", header), flags=re.S)
        declared = re.findall(r"^(?:iso_status|const char \*|void) ?(iso_\w+)\((.*?)\);", plain,
                              re.M | re.S)
        counts = {name: 0 if parameters == "void" else parameters.count(",") + 1
                  for name, parameters in declared}
        for name, types in calls.items():
            self.assertEqual(len(types), counts.get(name, len(types)), name)
        return counts.keys() - calls.keys()

    def test_structures_have_the_fields_of_the_header(self):
        header = "".join(re.sub(r"/\*.*?\*/", "", text("runtime", name), flags=re.S)
                         for name in ("iso.h", "iso_group.h", "iso_model.h"))
        for name, structure in (("iso_config", _native.Config), ("iso_layout", _native.Layout),
                                ("iso_tensor", _native.Tensor), ("iso_run", _native.Run),
                                ("iso_keys", _Keys), ("iso_group_config", group._Config),
                                ("iso_model_config", model._Config),
                                ("iso_model_sizes", model._Sizes), ("iso_step", model._Step),
                                ("iso_sequence", model._Sequence), ("iso_value", model._Value),
                                ("iso_difference", model._Difference)):
            body = re.search(r"typedef struct %s \{(.*?)\} %s;" % (name, name), header, re.S)[1]
            fields = re.findall(r"(\w+)(?:\[\w+\])?[,;]", body)
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
