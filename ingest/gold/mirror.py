"""A mirror: its place, its keys and its columns, from the rules, the books and what was decided."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ingest import types
from ingest.change import TableId
from ingest.config import Pipeline, TableRule
from ingest.lake.names import column_name, mirror_path
