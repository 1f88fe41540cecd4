"""One module per page. Each has a `PAGE`: where it is, its name, its shortcut, and the function that draws it.

In: a `PageContext`. Out: elements that follow the observer's rounds. Must not import each other.
"""

from twinlog.dashboard.frame import Page
from twinlog.dashboard.pages import cluster, groups, messages, pipeline, replication, topics

PAGES: tuple[Page, ...] = (cluster.PAGE, replication.PAGE, topics.PAGE, groups.PAGE, messages.PAGE, pipeline.PAGE)
