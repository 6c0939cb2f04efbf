"""Which operators there are, and of what each is made. The versions stand in each one's go.mod."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rankzero.errors import ConfigError
from scripts.lab import programs
from scripts.lab.images import EMPTY, Image
from scripts.lab.node_image import node_image
from scripts.lab.settings import NAME, registry_host


@dataclass(frozen=True)
class Operator:
    """One controller, its custom resources and webhooks."""

    name: str
    """Also the folder here with its kustomization.yaml."""
    family: str
    """Of :mod:`scripts.lab.programs`."""
    module: str
    program: str
    """As the compiler names it."""
    manifests: str = ""
    """Folder of the module with what its makers install; empty where the folder here has everything."""
    needs: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    """Debian packages that it calls; with them its image stands on the nodes' own."""

    @property
    def folder(self) -> Path:
        return Path(__file__).with_name(self.name)

    @property
    def version(self) -> str:
        return programs.module_version(self.family, self.module)

    @property
    def image(self) -> Image:
        reference = f"{registry_host()}/{NAME}/{self.name}:{self.version}"
        base = node_image() if self.packages else EMPTY
        program = programs.program(self.family, self.program)
        return Image(reference, program, self.program, base=base, packages=self.packages)

    @property
    def is_built(self) -> bool:
        return programs.folder(self.family).is_dir()

    def build(self) -> None:
        """Compile it. Raises CommandError."""
        programs.build(self.family, {self.module: self.manifests} if self.manifests else {})


OPERATORS = (
    Operator(
        "training-operator",
        "training-operator",
        "github.com/kubeflow/training-operator",
        "training-operator.v1",
        "manifests",
    ),
    Operator("jobset", "jobset", "sigs.k8s.io/jobset", "jobset", "config"),
    Operator(
        "trainer",
        "trainer",
        "github.com/kubeflow/trainer/v2",
        "trainer-controller-manager",
        "manifests",
        needs=("jobset",),
    ),
    Operator("kueue", "kueue", "sigs.k8s.io/kueue", "kueue", "config"),
    Operator(
        "kube-router",
        "kube-router",
        "github.com/cloudnativelabs/kube-router/v2",
        "kube-router",
        packages=("ipset", "iptables"),
    ),
    Operator("hami-scheduler", "kubernetes", "k8s.io/kubernetes", "kube-scheduler"),
)
"""What another one needs stands before it."""


def names() -> list[str]:
    """Of all operators, in the order in which they are installed."""
    return [operator.name for operator in OPERATORS]


def chosen(asked: Sequence[str]) -> list[Operator]:
    """Those of these names, with all that they need, in the order in which they are installed."""
    if unknown := set(asked) - set(names()):
        raise ConfigError(f"no operator {' or '.join(sorted(unknown))}", hint=f"one of {', '.join(names())}")
    wanted = set(asked)
    for operator in reversed(OPERATORS):
        if operator.name in wanted:
            wanted.update(operator.needs)
    return [operator for operator in OPERATORS if operator.name in wanted]
