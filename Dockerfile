# One image that launches jobs and is their workers, so that both have the very same packages.
#
#   make image IMAGE=<registry>/<project>/recordmill:0.1.0 LAUNCHER_IMAGE=<launcher>
#   make worker_image IMAGE=<registry>/<project>/recordmill:0.1.0
#
# <launcher> is Google's base image of Flex Templates for Python 3.11, which Dataflow's documentation
# of Flex Templates names: python311-template-launcher-base.
#
# What it weighs, unpacked: Python's own image 0.13 GB; packages 3.3 GB, of which TensorFlow 1.9 GB
# (the reader and `recordmill vocab`), Google's clients 0.3, tensorflow-text 0.2, numba with LLVM
# 0.2, Arrow 0.15, Beam 0.1; Beam's boot program and Dataflow's launcher 0.03 GB; recordmill 1 MB.

# Tags move, so Python's image has a digest: that of its index for all kinds of machines, Python 3.11.16
# on Debian 13. No registry was asked: the Dockerfiles of more than ten unrelated public repositories
# give this digest for this tag, one of them for Amazon's mirror. For Beam's image none was found.
# `docker buildx imagetools inspect python:3.11-slim` prints today's, to be given with
# --build-arg PYTHON_IMAGE=python@sha256:..., and so for the other two.
ARG PYTHON_IMAGE=python:3.11-slim@sha256:9c900dea9e8fb7e16277c179b555cc72d29a352dbc33cff48ad5a0412fd5bfc7
ARG BEAM_IMAGE=apache/beam_python3.11_sdk:2.77.0
ARG LAUNCHER_IMAGE=scratch

FROM ${BEAM_IMAGE} AS beam
FROM ${LAUNCHER_IMAGE} AS launcher

FROM ${PYTHON_IMAGE} AS packages
WORKDIR /build
RUN python3 -m venv /opt/recordmill
ENV PATH=/opt/recordmill/bin:$PATH
COPY requirements.lock .
RUN pip install --no-cache-dir --no-deps --require-hashes --requirement requirements.lock
COPY setup.py pyproject.toml README.md ./
COPY records records
COPY reader reader
COPY transforms transforms
COPY pipelines pipelines
RUN pip install --no-cache-dir --no-deps .

# What runs jobs and workers everywhere but on Dataflow: no launcher, and no root.
FROM ${PYTHON_IMAGE} AS workers
COPY --from=beam /opt/apache/beam /opt/apache/beam
COPY --from=packages /opt/recordmill /opt/recordmill

# The packages above are what the workers have: none is installed when they start. One thread each,
# as pipelines/local.py has it for workers of this machine. (No secret: a thread pool of tokenizers.)
# hadolint ignore=DL3064
ENV PATH=/opt/recordmill/bin:$PATH \
    RUN_PYTHON_SDK_IN_DEFAULT_ENVIRONMENT=1 \
    OMP_NUM_THREADS=1 \
    TF_NUM_INTRAOP_THREADS=1 \
    TF_NUM_INTEROP_THREADS=1 \
    NUMBA_NUM_THREADS=1 \
    TOKENIZERS_PARALLELISM=false \
    TF_CPP_MIN_LOG_LEVEL=3 \
    GRPC_VERBOSITY=ERROR

RUN useradd --uid 10001 --create-home recordmill \
    && pip check \
    && python -c "import apache_beam.io.gcp.gcsio, apache_beam.runners.dataflow.internal.apiclient, \
recordmill.pipelines.commands.images, recordmill.pipelines.commands.text, \
recordmill.pipelines.commands.vocab, recordmill.pipelines.templates, recordmill.pipelines.engines.worker_boot, recordmill.reader" \
    && recordmill --help

# recordmill, by its number: Kubernetes refuses names where it wants no root.
USER 10001
ENTRYPOINT ["/opt/apache/beam/boot"]

# The same with Dataflow's launcher, which ends unless it is root: Dataflow mounts folders that only
# root may write to (python-docs-samples #13213). Its workers have the same rights.
FROM workers AS template
COPY --from=launcher /opt/google/dataflow/python_template_launcher /opt/google/dataflow/
COPY templates/text/main.py /template/text/main.py
COPY templates/images/main.py /template/images/main.py

# Whose launcher this is, and under which name workers find it.
ARG TEMPLATE=text
ARG IMAGE
ENV FLEX_TEMPLATE_PYTHON_PY_FILE=/template/${TEMPLATE}/main.py \
    RECORDMILL_IMAGE=${IMAGE}

ARG RUN_AS=root
USER ${RUN_AS}
