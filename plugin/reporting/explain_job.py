"""`stitchfleet explain SUMMARY.json`: a job's step in words, and as a page (explain_page.py) or a picture (step_picture.py).

`stitchfleet run --summary SUMMARY.json` has written SUMMARY.json. Times are from the calls in which the guard ran both, the kernel
and TensorFlow's operators. The operators are called as a function; their time includes that call, some microseconds.
"""

from __future__ import annotations

import pathlib

from ..clusters import step_graph
from .explain_page import as_html
from .explain_story import JobStory, read_story
from .explain_text import as_text
from .step_picture import KindTimes, draw


def explain_job(path: pathlib.Path, html: pathlib.Path | None = None, svg: pathlib.Path | None = None) -> str:
    """Returns a job's step in words. path: its summary. html, svg: files to which a page and a picture are written, if given.

    Raises OSError, and ValueError with a line for people if the file is not a summary, or if there is no step to draw.
    """
    story = read_story(path)
    if html is not None or svg is not None:
        picture = draw(
            _step(story), {kind.name: KindTimes(kind.fallback_us, kind.kernel_us, kind.state) for kind in story.kinds}
        )
        if svg is not None:
            svg.write_text(picture + "\n")
        if html is not None:
            html.write_text(as_html(story, picture))
    return "\n".join(as_text(story))


def _step(story: JobStory) -> step_graph.StepGraph:
    if story.graph_path is None:
        why = story.program["reason"] or "TensorFlow was never offered the stitched arm"
        raise ValueError(f"no picture: the summary names no step graph ({why})")
    try:
        return step_graph.read(story.graph_path)
    except FileNotFoundError:
        raise ValueError(f"no picture: {story.graph_path} is not there (it may also lie beside the summary)") from None
    except ValueError as error:
        raise ValueError(f"{story.graph_path}: {error}") from None
