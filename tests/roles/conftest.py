"""Modules find what roles share where Ansible puts it on a node, also when a test imports them."""

from __future__ import annotations

import tests.roles.torch_first  # noqa: F401  # isort: skip
import ansible.module_utils

from scripts.cache import REPO

ansible.module_utils.__path__.extend(map(str, sorted(REPO.glob("roles/*/module_utils"))))
