"""What happened in a job, for people and programs.

summary        one JSON document at its end; summary_text: in words; summaries: those of all processes of a run
explain_job    `stitchfleet explain SUMMARY.json`, of explain_story, explain_text, explain_page and step_picture
"""
