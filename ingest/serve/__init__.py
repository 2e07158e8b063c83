"""The service: pages and a JSON API over several pipelines, and their runs on schedules."""
