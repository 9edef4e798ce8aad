"""Reports what happened in a job, to people and programs.

summary        makes a process's JSON document at its end; summary_text: prints it; summaries: the files of all processes of a run
explain_job    `stitchfleet explain SUMMARY.json`; explain_story: reads a summary; explain_text, explain_page, step_picture show it
"""
