"""A rehearsal of the product's own work, so that Java's class archive holds what a run needs.

``__main__`` runs ``pipeline.yaml`` over ``first.jsonl`` and then over ``second.jsonl``, in a folder of its own.
"""
