"""Files on local disks, Google Cloud Storage and all other file systems of Beam; external sort."""
