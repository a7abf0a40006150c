# One image that launches jobs and is their workers, so that both have the very same packages.
#
#   make image IMAGE=<registry>/<project>/recordmill:1.0.0 LAUNCHER_IMAGE=<launcher>
#   make worker_image IMAGE=<registry>/<project>/recordmill:1.0.0
#
# <launcher> is Google's base image of Flex Templates for Python 3.11, which Dataflow's documentation
# of Flex Templates names: python311-template-launcher-base.
#
# What it weighs, unpacked: Python's own image 0.13 GB; packages 3.3 GB, of which TensorFlow 1.9 GB
# (the reader and `recordmill vocab`), Google's clients 0.3, tensorflow-text 0.2, numba with LLVM
# 0.2, Arrow 0.15, Beam 0.1; Beam's boot program and Dataflow's launcher 0.03 GB; recordmill 1 MB.

# Tags move, so images have digests: those of their indexes for all kinds of machines, Python 3.11.16
# and Go 1.26.5, both on Debian 13. No registry was asked: the files of ten and more unrelated public
# repositories give these digests for these tags.
# `docker buildx imagetools inspect python:3.11-slim` prints today's, to be given with
# --build-arg PYTHON_IMAGE=python@sha256:..., and so for the other two.
ARG PYTHON_IMAGE=python:3.11-slim@sha256:9c900dea9e8fb7e16277c179b555cc72d29a352dbc33cff48ad5a0412fd5bfc7
ARG GO_IMAGE=golang:1.26.5-trixie@sha256:4ee9ffa999b4583ce281939cdff828763083610292f252279a0cee77473bd9a7
ARG LAUNCHER_IMAGE=scratch

FROM ${LAUNCHER_IMAGE} AS launcher

# Beam's boot program, from Beam's module: go.sum has hashes of it and of what it needs, and go takes
# no other; their licences lie beside it. Beam's own image would give it with 2 GB that are not used here.
FROM ${GO_IMAGE} AS boot
WORKDIR /build
COPY templates/boot/go.mod templates/boot/go.sum ./
RUN CGO_ENABLED=0 go build -mod=readonly -trimpath -ldflags='-s -w' -o /opt/apache/beam/boot \
        github.com/apache/beam/sdks/v2/python/container \
    && for module in $(go list -deps -f '{{with .Module}}{{.Dir}}{{end}}' \
        github.com/apache/beam/sdks/v2/python/container); do \
        mkdir -p "/opt/apache/beam/licenses/${module#*/pkg/mod/}" \
        && cp "$module"/LICENSE* "/opt/apache/beam/licenses/${module#*/pkg/mod/}/" || exit 1; done

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
COPY --from=boot /opt/apache/beam /opt/apache/beam
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
    RAYON_NUM_THREADS=1 \
    FASTOKENS_BPE_THREADS=1 \
    TF_CPP_MIN_LOG_LEVEL=3 \
    GRPC_VERBOSITY=ERROR

# Kernels are compiled here, once, for any processor since 2009 (x86-64-v2), so that no worker waits
# for them. Built for arm64, where these features are unknown, the image compiles at first use.
ENV RECORDMILL_KERNELS=/opt/recordmill/kernels \
    NUMBA_CPU_NAME=x86-64-v2 \
    NUMBA_CPU_FEATURES=+cx16,+popcnt,+sse3,+ssse3,+sse4.1,+sse4.2,+crc32
RUN recordmill doctor --compile

RUN useradd --uid 10001 --create-home recordmill \
    && chmod 1777 /home/recordmill \
    && pip check \
    && python -c "import apache_beam.io.gcp.gcsio, apache_beam.runners.dataflow.internal.apiclient, \
recordmill.pipelines.commands.images, recordmill.pipelines.commands.text, \
recordmill.pipelines.commands.vocab, recordmill.pipelines.templates, recordmill.pipelines.engines.worker_boot, recordmill.reader" \
    && recordmill --help

# recordmill, by its number: Kubernetes refuses names where it wants no root. Beam's boot program writes
# the options of a job where it is started, so any user must be able to.
USER 10001
WORKDIR /home/recordmill
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
