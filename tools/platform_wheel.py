"""The ``setup.py`` of sources with object code in them, by which `make wheels` builds a wheel of one platform.

Its files are no Python and are of that platform, so its root is not pure; nothing is compiled, and it is for every
Python 3. The rest stands in ``setup.cfg``.
"""

from __future__ import annotations

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel


class Platform(Distribution):
    def has_ext_modules(self) -> bool:
        return True


class Wheel(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(distclass=Platform, cmdclass={"bdist_wheel": Wheel})
