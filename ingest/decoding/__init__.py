"""What formats share: exact Avro, Connect schemas, Canal's envelope, conversion plans for columns.

A dialect's own facts stay in its module under `ingest.formats`; what two of them need lives here.
"""
