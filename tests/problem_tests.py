"""Which test brings about each kind of problem, and types the command that it prints: docs/problems.md lists them."""

from __future__ import annotations

from collections.abc import Iterable

from ingest.inspect.problem_kinds import OF_CHECKS, OF_THE_LAKE, OF_THRESHOLDS

SHOWN = {  # the kinds that the states of tests/test_ways_out.py have, by the states' names
    "held": {"held"},
    "rejected": {"reject_rate", "cell_rejects"},
    "refused": {"refused_changes"},
    "pending": {"ddl_pending"},
    "unknown": {"unknown_values"},
    "paused": {"paused"},
    "gone": {"failed"},
    "damaged": {"damaged"},
    "foreign": {"held"},
    "excluded": {"excluded"},
    "taken_back": {"left_out"},
    "set_back": {"rows_set_back"},
    "inserted_twice": {"insert_of_a_live_key"},
    "misread": {"bytes_misread"},
    "reconfigured": {"decoded_before"},
    "without_silver": {"lake"},
    "taken": {"rows_removed"},
    "remasked": {"masks"},
    "decoded_again": {"outdated"},
    "stale": {"freshness"},
    "late": {"old_positions"},
    "lost": {"images_before"},
    "restarted": {"positions_started_again", "old_positions"},
    "loaded_again": {"re_reads_ignored"},
    "without_a_column": {"partial_rows"},
    "no_more_a_column": {"vanished_columns"},
    "begun_in_the_middle": {"incomplete_rows"},
    "cut_off": {"rows_not_loaded"},
    "loaded_in_part": {"rows_not_loaded_again"},
    "spelt_twice": {"key_spellings"},
    "planted": {"wrong_cells"},
}
ELSEWHERE = {  # tests of their own
    "declared_types": "tests/inspect/test_edited_rules.py:test_the_commands_that_are_named_are_enough",
    "not_plain": "tests/inspect/test_edited_rules.py:test_the_commands_that_are_named_are_enough",
    "catalog": "tests/catalog/test_sync.py:test_a_catalog_that_is_away_costs_no_data",
    "erasure": "tests/erase/test_erase.py:test_an_erasure_that_was_killed_is_completed",
    "interrupted": "tests/inspect/test_interrupted.py:test_a_full_disk_is_said_until_the_next_run",
    "key_lost": "tests/lake/test_sealing_keys.py:test_maintain_drops_and_rewraps_keys",
    "last_run": "tests/inspect/test_problems.py:test_only_the_alarm_of_a_mirror_that_is_listed_is_left_out",
    "misdated": "tests/cli/test_plan_rules.py:test_times_of_another_unit_are_reported",
    "idle_rules": "tests/lake/test_idle_rules.py:test_an_entry_that_misses_a_table_by_its_schema_is_named",
    "missing_inputs": "tests/lake/test_missing_inputs.py:test_a_topic_that_the_broker_lacks_is_a_problem_until_it_is_there",
    "not_compared": "tests/inspect/test_calm.py:test_a_comparison_that_no_schedule_makes_is_said",
    "pipeline_file": "tests/inspect/test_problems.py:test_a_file_that_cannot_be_looked_at_is_a_problem_for_programs",
    "ahead": "tests/inspect/test_calm.py:test_a_row_whose_clock_is_ahead_is_said_and_hides_no_lag",
    "message_rejects": "tests/inspect/test_problems.py:test_each_cause_is_listed_once",
    "rows_left_behind": "tests/quality/test_left_behind.py:test_a_renamed_table_lacks_its_rows_until_they_are_loaded",
    "types_misread": "tests/quality/test_misread.py:test_an_approved_statement_does_not_settle_how_its_column_is_read",
    "change_rejects": "tests/test_ways_out.py:refused",
    "rows_never_sent": "tests/quality/test_images_before.py:test_what_a_late_message_brings_was_sent",
    **dict.fromkeys(  # a night of one pipeline
        ("event_order", "unplaced_changes", "repeated_moves", "row_count", "key_unique", "key_not_null", "ghost_rows",
         "missing_rows", "schema", "readable", "rows", "cells_checked", "ambiguities", "rows_read_again", "changes_compared",
         "changes_proven", "duplicates", "rows_left_out", "columns_left_out", "cells_cut", "columns_masked", "cascaded_rows",
         "converted_cells", "nulls_left_out", "missing_parts"),
        "tests/inspect/test_brought_about.py:test_what_has_happened_is_listed",
    ),
    **dict.fromkeys(
        ("gaps", "losses", "lost_deletes", "order_strength", "mixed_topics"),
        "tests/inspect/test_brought_about.py:test_what_topics_send_is_listed",
    ),
}  # fmt: skip
EVERY_CHECK = "tests/inspect/test_every_kind.py:test_every_command_runs"


def named_tests(kind: str) -> Iterable[str]:
    """The tests of a kind, as file and function."""
    yield from (f"tests/test_ways_out.py:{state}" for state, kinds in SHOWN.items() if kind in kinds)
    if kind in ELSEWHERE:
        yield ELSEWHERE[kind]
    if kind in OF_CHECKS | OF_THRESHOLDS and kind not in OF_THE_LAKE:
        yield EVERY_CHECK
