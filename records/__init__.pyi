from .errors import RunError as RunError
from .errors import UsageError as UsageError
from .manifest import Manifest as Manifest
from .manifest import ShardInfo as ShardInfo
from .schema import Feature as Feature
from .schema import Schema as Schema
from .shards import ShardName as ShardName
