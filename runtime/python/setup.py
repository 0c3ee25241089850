"""The wheel's version and tag: the library inside fits any Python 3, but one kind of machine."""

import pathlib
import re
import sysconfig

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel

HERE = pathlib.Path(__file__).parent


def version():
    return re.search(r'#define ISO_VERSION "(.*)"', (HERE / "iso.h").read_text())[1]


class Binary(Distribution):
    def has_ext_modules(self):
        return True


class Wheel(bdist_wheel):
    def get_tag(self):
        """manylinux by the newest glibc symbol that the libraries ask for."""
        libraries = b"".join(path.read_bytes() for path in (HERE / "isoc").glob("lib*.so*"))
        needs = re.findall(rb"GLIBC_2\.(\d+)", libraries)
        machine = sysconfig.get_platform().rpartition("-")[2]
        return "py3", "none", f"manylinux_2_{max(map(int, needs))}_{machine}"


setup(version=version(), distclass=Binary, cmdclass={"bdist_wheel": Wheel})
