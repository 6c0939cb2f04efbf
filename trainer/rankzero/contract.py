"""Every name that two parts of rankzero share.

Three parties meet here: the chart, which renders these names; the roles, which write some of them on
nodes; and the launcher, which reads them in the pod. ``tests/contract`` compares each party with this
file, so a name changes here or nowhere. This module imports nothing.
"""

API_GROUP = "rankzero.io"

# --- Chart -> launcher: the environment of the trainer container (a closed list) ----------------------

ENV_CONFIG = "RANKZERO_CONFIG"
"""Path of the mounted ``train.yaml``."""
ENV_CONFIG_HASH = "RANKZERO_CONFIG_HASH"
"""Names the settings in ``train.yaml``: pods with different ones come from different versions of the release."""
ENV_RUN_NAME = "RANKZERO_RUN_NAME"
"""The Helm release name."""
ENV_RUN_ID = "RANKZERO_RUN_ID"
"""Names one run of the release; part of the state directory's path."""
ENV_NAMESPACE = "RANKZERO_NAMESPACE"
ENV_WORKLOAD = "RANKZERO_WORKLOAD"
"""``Kind/name`` of the object that owns the pods, e.g. ``StatefulSet/mnist``."""
ENV_RANK0_HOST = "RANKZERO_RANK0_HOST"
"""DNS name of the pod with node rank 0, without a cluster domain."""
ENV_NODE_RANK = "RANKZERO_NODE_RANK"
"""The pod's index among those of its template, from 0."""
ENV_FIRST_NODE_RANK = "RANKZERO_FIRST_NODE_RANK"
"""The node rank of index 0; a PyTorchJob has two templates, of which that of its workers begins at 1."""
ENV_STATE_ROOT = "RANKZERO_STATE_ROOT"
"""Mount path of the checkpoint volume; the state directory lies below it."""
ENV_GRACE_SECONDS = "RANKZERO_GRACE_SECONDS"
"""``terminationGracePeriodSeconds``: seconds between SIGTERM and SIGKILL of the pod."""
ENV_POD_NAME = "RANKZERO_POD_NAME"
ENV_POD_UID = "RANKZERO_POD_UID"
ENV_POD_IP = "RANKZERO_POD_IP"
ENV_NODE_NAME = "RANKZERO_NODE_NAME"

CHART_ENV = (
    ENV_CONFIG,
    ENV_CONFIG_HASH,
    ENV_RUN_NAME,
    ENV_RUN_ID,
    ENV_NAMESPACE,
    ENV_WORKLOAD,
    ENV_RANK0_HOST,
    ENV_NODE_RANK,
    ENV_FIRST_NODE_RANK,
    ENV_STATE_ROOT,
    ENV_GRACE_SECONDS,
    ENV_POD_NAME,
    ENV_POD_UID,
    ENV_POD_IP,
    ENV_NODE_NAME,
)

# --- Chart -> training script: object storage, which only the script reads -------------------------------

ENV_OBJECT_STORAGE_URL = "RANKZERO_OBJECT_STORAGE_URL"
"""Where a script may keep what it likes."""
ENV_DATASETS = "RANKZERO_DATASETS"
"""JSON: for each dataset in object storage its ``url``, ``cache`` (a folder of the pod) and, if bounded, ``size``."""
CACHE_PATH = "/tmp/cache"  # noqa: S108 -- a mount of the pod
"""Where the image keeps caches, and the chart mounts a volume for them."""

# --- Launcher -> training script: what a worker finds beside torchrun's own variables -----------------

ENV_STATE_DIR = "RANKZERO_STATE_DIR"
"""The run's state directory."""
ENV_ATTEMPT_DIR = "RANKZERO_ATTEMPT_DIR"
"""A folder in this node's memory that launcher and workers share for one attempt; its files are named below."""
ENV_COLLECTIVE_TIMEOUT = "RANKZERO_COLLECTIVE_TIMEOUT"
"""Seconds that one collective may take: longer than the watchdog waits, so that the watchdog speaks first."""
ENV_ATTEMPT = "RANKZERO_ATTEMPT"
"""Number of the attempt this worker belongs to, from 1."""

# --- Ports ---------------------------------------------------------------------------------------------

RENDEZVOUS_PORT = 29500
"""The coordinator of node rank 0 listens here (PyTorch's customary rendezvous port) unless the values name another."""
STATUS_PORT = 29510
"""Every launcher serves /healthz, /readyz and /status here unless the values name another."""
RENDEZVOUS_PORT_NAME, STATUS_PORT_NAME = "rendezvous", "status"
"""Names of these ports in the container."""
PYTORCHJOB_PORT_NAME = "pytorchjob-port"
"""The former's name in a PyTorchJob: without a port of that name its operator adds one of its own choice."""
FIRST_STORE_PORT, LAST_STORE_PORT = 20000, 29499
"""The launcher of node rank 0 takes a free one of these for the store of each attempt's PyTorch. They are below
PyTorch's customary rendezvous port and Kubernetes' node ports (30000-32767)."""

# --- Paths in the trainer image and pod ----------------------------------------------------------------

CONFIG_FILE = "train.yaml"
"""The ConfigMap's key."""
CONFIG_PATH = f"/etc/rankzero/{CONFIG_FILE}"
STATE_ROOT = "/checkpoints"
LOCAL_CHECKPOINTS_PATH = "/local-checkpoints"
"""Where the chart mounts the nodes' own disk for checkpoints."""
CODE_CHECKOUT_PATH = "/code/checkout"
"""Where an init container fetches a git revision to; the trainer has it under a path of the user's."""
CODE_CONTAINER_NAME = "code"
"""That init container, whose status a Job's rules ask for by its name."""
CODE_CREDENTIALS_PATH = "/etc/rankzero-code"
"""The Secret for a private repository, in that init container."""
TERMINATION_LOG = "/dev/termination-log"

# --- The state directory: STATE_ROOT/<run name>/<run id>/ ----------------------------------------------

RUN_FILE = "run.json"
OUTCOME_FILE = "outcome.json"
RESULT_FILE = "result.json"
"""What the training script reported as its result (``rankzero.train.progress.report_result``)."""
METRICS_FILE = "metrics.jsonl"
TENSORBOARD_DIR = "tensorboard"
"""Event files of rank 0, where train.progress.tensorboard asks for them."""
MLFLOW_RUN_FILE = "mlflow-run.json"
"""The MLflow run that all attempts of a run report to."""
ATTEMPTS_DIR = "attempts"
PROGRESS_FILE = "progress.json"
"""The last heartbeat of every rank, as the coordinator heard them."""
CHECKPOINTS_DIR = "checkpoints"
LOGS_DIR = "logs"
MANIFEST_FILE = "MANIFEST.json"
LATEST_FILE = "latest.json"
"""Beside the checkpoints: which of them was written last, for people and programs that only look."""
LOCAL_FILE = "local.json"
"""Beside the checkpoints of a run that keeps some on its nodes: what the folders there are called."""


def attempt_file(attempt: int) -> str:
    """Relative path of an attempt's record."""
    return f"{ATTEMPTS_DIR}/{attempt:04d}.json"


def evidence_dir(attempt: int) -> str:
    """Relative path of what a stalled attempt leaves: stacks of all ranks, flight recorder dumps."""
    return f"{ATTEMPTS_DIR}/{attempt:04d}"


def log_dir(attempt: int) -> str:
    """Relative path of what all ranks printed in an attempt."""
    return f"{LOGS_DIR}/attempt-{attempt:04d}"


def log_file(attempt: int, rank: int) -> str:
    """Relative path of what a rank printed in an attempt."""
    return f"{log_dir(attempt)}/rank-{rank:05d}.log"


def checkpoint_dir(step: int) -> str:
    """Relative path of the checkpoint taken after ``step`` optimizer steps."""
    return f"{CHECKPOINTS_DIR}/step-{step:010d}"


# --- The attempt's folder on a node: RANKZERO_ATTEMPT_DIR -----------------------------------------------

STOP_FILE = "stop"
"""Appears when all ranks are to save and leave (``rankzero.train.stopping``)."""


def heartbeat_file(rank: int) -> str:
    """A rank's last sign of life (``rankzero.heartbeat``)."""
    return f"heartbeat-{rank:05d}"


def stack_file(rank: int) -> str:
    """Where a rank writes the Python stacks of its threads when it is asked."""
    return f"rank-{rank:05d}.stack.txt"


def flight_file(rank: int | str = "") -> str:
    """Where a rank leaves torch's flight recorder; without a rank, the prefix that torch completes."""
    return f"flight-recorder-{rank}"


# --- Exit codes of `rankzero launch` (a failed worker's own code is passed on) --------------------------

EXIT_OK = 0
EXIT_USAGE = 64
"""The command line, the environment or ``train.yaml`` is wrong: retrying cannot help."""
EXIT_DO_NOT_RETRY = 65
"""A script ends with it to say: the same again cannot help. The run fails at once."""
EXIT_NO_PROGRESS = 66
"""The budget is spent, and no worker left a code of its own: attempts stalled, or containers died."""
EXIT_RANK0_UNREACHABLE = 68
"""Rank 0 was not reached, or the group did not become complete, within the deadline."""
EXIT_PREFLIGHT = 69
"""The pod or its volumes are not fit for training."""
EXIT_INTERNAL = 70
"""A bug in rankzero itself."""
EXIT_REQUEUE = 75
"""Stopped from outside (preemption); a later attempt resumes from the last checkpoint."""

POD_ENDS_RUN_GOES_ON = (EXIT_RANK0_UNREACHABLE, EXIT_REQUEUE)
"""A Job replaces a pod that ends with one of these, however often: nothing is wrong with it or with the script."""
POD_FAILED = (EXIT_PREFLIGHT, EXIT_INTERNAL, 128, 134, 135, 137, 139, 143, 255)
"""A Job replaces a pod that ends with one of these as often as workload.backoffLimit says. containerd reports 128 for a
container that a node cannot start (StartError) and 255 for one that is gone after the node's reboot (Unknown); those
between are those of a launcher that a signal ended, SIGKILL for want of memory among them. With any other code the
whole run has ended."""
EXIT_REPLACE = 143
"""Stands for all of these in a PyTorchJob, whose operator replaces a pod for codes from 128 on only."""

# --- Exit codes of `rankzero diff`, beside EXIT_OK for no difference; any other is an error -------------------

EXIT_DIFFERENT = 3
EXIT_NOT_BY_UPGRADE = 4
"""An upgrade is not the way: it would be refused, would not reach running pods, or would delete checkpoints."""

# --- Leaving together ---------------------------------------------------------------------------------------

STEPS_AHEAD = 3
"""Steps from the last rank's note that it was asked to the one after which all save (``rankzero.train.stopping``)."""
LEAVE_MARGIN = 10
"""Seconds that a pod needs to leave beyond launch.saveTimeout and launch.stopTimeout: its grace must hold all three."""

# --- Kubernetes: labels, annotations, event reasons -----------------------------------------------------

LABEL_NAME = "app.kubernetes.io/name"
LABEL_INSTANCE = "app.kubernetes.io/instance"
LABEL_QUEUE = "kueue.x-k8s.io/queue-name"
"""On the workload: the queue of Kueue that it waits in."""
APP_NAME = "rankzero"
WORKLOAD_APIS = {
    "StatefulSet": "apps/v1",
    "Job": "batch/v1",
    "Pod": "v1",
    "PyTorchJob": "kubeflow.org/v1",
    "TrainJob": "trainer.kubeflow.org/v1alpha1",
}
WORKLOAD_KINDS = tuple(WORKLOAD_APIS)
"""Kinds of object that the pods can belong to, and the versions of their APIs."""
CONTAINER_NAME = "trainer"
PYTORCHJOB_CONTAINER_NAME, TRAINJOB_CONTAINER_NAME = "pytorch", "node"
"""Its name where an operator finds the container by it."""

EVENT_SUCCEEDED = "TrainingSucceeded"
EVENT_FAILED = "TrainingFailed"
ANNOTATION_OUTCOME = f"{API_GROUP}/outcome"
"""On the Event that ends a run: outcome.json in one line, with the last attempts only."""

# --- Roles -> chart: what a prepared node carries -------------------------------------------------------

LABEL_NODE_PROFILE = f"{API_GROUP}/node-profile"
"""Name of the profile that the playbook applied and verified, e.g. ``training``."""
LABEL_NODE_PROFILE_HASH = f"{API_GROUP}/node-profile-hash"
"""First 12 hexadecimal digits of the SHA-256 of what was asked of all roles."""
LABEL_GPU_COUNT = f"{API_GROUP}/gpu-count"
"""GPUs on the PCI bus, whatever a device plugin makes of them; absent without any."""
LABEL_DRIVER_BRANCH = f"{API_GROUP}/driver-branch"
"""Branch of the NVIDIA driver that is loaded, e.g. ``580``; absent without one."""
LABEL_CPU_MANAGER = f"{API_GROUP}/cpu-manager"
"""Policy of the kubelet's CPU manager, e.g. ``static``; absent where the role that sets it did not run."""
ANNOTATION_INTERFACES = f"{API_GROUP}/interfaces"
"""Network interfaces that carry training, with commas, as in NCCL_SOCKET_IFNAME."""
ANNOTATION_HCAS = f"{API_GROUP}/hcas"
"""RDMA devices that carry training, with commas, as in NCCL_IB_HCA; empty without any."""
ANNOTATION_RAILS = f"{API_GROUP}/rails"
"""JSON: for each GPU the RDMA devices and interfaces next to it."""
NODE_PROFILE_FILE = "/var/lib/rankzero/profile.json"
"""On the node: the profile that its labels promise."""
GPU_RESOURCE = "nvidia.com/gpu"
