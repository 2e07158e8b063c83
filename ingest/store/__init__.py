"""Where a lake's bytes lie: a folder, an object store or one that only Hadoop reaches; its names, its lock, its failures."""
