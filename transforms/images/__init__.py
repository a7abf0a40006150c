"""Images to examples: decoding, geometry, augmentation, annotations, record formats, shards."""
