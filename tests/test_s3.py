"""Files on S3, by Beam's own file system, against moto in this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from recordmill.records.errors import RunError
from recordmill.transforms.storage import files

BUCKET = "s3://bucket"


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """An empty bucket."""
    for needed in ("boto3", "moto"):
        pytest.importorskip(needed, reason=f"{needed} is not installed, which stands in for S3")
    import boto3
    from moto import mock_aws

    with pytest.MonkeyPatch.context() as patch, mock_aws():
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "none")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        boto3.client("s3").create_bucket(Bucket="bucket")
        yield BUCKET


@pytest.mark.slow
def test_files(bucket: str) -> None:
    path, data = f"{bucket}/files/x y.bin", bytes(range(256)) * 4000
    with files.writing(path) as handle:
        handle.write(data[:1000])
        handle.write(data[1000:])
    assert files.read_bytes(path) == data
    assert files.read_bytes(path, 7, 9) == data[7:16]
    assert files.size(path) == len(data)
    assert files.list_files(f"{bucket}/files") == {path: len(data)}
    files.rename([path], [f"{bucket}/files/z"])
    with files.open_read(f"{bucket}/files/z", 5) as handle:
        assert handle.read(10) == data[5:15]
    assert not files.exists(path)
    files.delete_folder(f"{bucket}/files")
    assert files.list_files(f"{bucket}/files") == {}


def test_what_is_not_there(bucket: str) -> None:
    assert files.size(f"{bucket}/none") == -1
    with pytest.raises(FileNotFoundError, match="Not found"):
        files.read_bytes(f"{bucket}/none")
    with pytest.raises(RunError, match="cannot rename s3://bucket/none to"):
        files.rename([f"{bucket}/none"], [f"{bucket}/other"])
