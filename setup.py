"""One wheel a platform for all versions of CPython, but for those without the interpreter's lock.

They have no stable ABI, and setuptools refuses it for them: there a wheel is for one version.
Everything else is in pyproject.toml.
"""

import sysconfig

from setuptools import setup

has_stable_abi = not sysconfig.get_config_var("Py_GIL_DISABLED")
setup(options={"bdist_wheel": {"py_limited_api": "cp311"}} if has_stable_abi else {})
