# One image that launches jobs and is their workers, so that both have the very same packages.
#
#   make image IMAGE=<registry>/<project>/recordmill:0.1.0 LAUNCHER_IMAGE=<launcher>
#
# <launcher> is Google's base image of Flex Templates for Python 3.11, which Dataflow's documentation
# of Flex Templates names: python311-template-launcher-base.
#
# What it weighs, unpacked: Python's own image 0.13 GB; packages 3.3 GB, of which TensorFlow 1.9 GB
# (the reader and `recordmill vocab`), Google's clients 0.3, tensorflow-text 0.2, numba with LLVM
# 0.2, Arrow 0.15, Beam 0.1; Beam's boot program and Dataflow's launcher 0.03 GB; recordmill 1 MB.

# Tags move. Who wants the same bytes again names the bases by digest, which `docker buildx imagetools
# inspect python:3.11-slim` prints: --build-arg PYTHON_IMAGE=python@sha256:…, and so the other two.
ARG PYTHON_IMAGE=python:3.11-slim
ARG BEAM_IMAGE=apache/beam_python3.11_sdk:2.77.0
ARG LAUNCHER_IMAGE

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

FROM ${PYTHON_IMAGE}
COPY --from=beam /opt/apache/beam /opt/apache/beam
COPY --from=launcher /opt/google/dataflow/python_template_launcher /opt/google/dataflow/
COPY --from=packages /opt/recordmill /opt/recordmill
COPY templates/text/main.py /template/text/main.py
COPY templates/images/main.py /template/images/main.py

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

# Whose launcher this is, and under which name workers find it.
ARG TEMPLATE=text
ARG IMAGE
ENV FLEX_TEMPLATE_PYTHON_PY_FILE=/template/${TEMPLATE}/main.py \
    RECORDMILL_IMAGE=${IMAGE}

# Dataflow mounts folders that only root may write to: its launcher ends without (python-docs-samples
# #13213). Elsewhere: --build-arg RUN_AS=recordmill, or any other user when it is started.
ARG RUN_AS=root
USER ${RUN_AS}

ENTRYPOINT ["/opt/apache/beam/boot"]
