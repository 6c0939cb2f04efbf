"""Ansible lookup of role machine: the text that a template comes to on this node.

Like ansible.builtin.template, which copies all variables of the node at every use, machine_facts and other reports
among them: a tenth of a second each time a variable is mentioned that is made of one.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from typing import Any

from ansible import constants
from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase
from ansible.template import trust_as_template

DOCUMENTATION = r"""
name: machine_template
short_description: The text that a template comes to
description: Reads a file of the role's templates folder and fills it in with the node's variables.
options:
  _terms:
    description: Names of files in the role's templates folder.
"""


class LookupModule(LookupBase):  # type: ignore[misc]
    """Ansible's entry point."""

    def run(self, terms: Sequence[str], variables: Mapping[str, Any] | None = None, **_: Any) -> list[str]:
        """The text of each file. Raises AnsibleLookupError for one that is not there."""
        scope = variables or {}
        managed = {"ansible_managed": constants.config.get_config_value("DEFAULT_MANAGED_STR")}
        templar = self._templar.copy_with_new_env(available_variables=ChainMap(dict(scope), managed))
        return [templar.template(self._text(scope, name), escape_backslashes=False) for name in terms]

    def _text(self, scope: Mapping[str, Any], name: str) -> Any:
        path = self.find_file_in_search_path(scope, "templates", name)
        if not path:
            raise AnsibleLookupError(f"no template {name} in the role's templates folder")
        return trust_as_template(self._loader.get_text_file_contents(path))
