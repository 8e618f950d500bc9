"""Read tables at once: hold publications, take a view, read, commit at its position, let go.

For small tables, several together, and for tables without a usable key.
"""

from collections.abc import Sequence

from gaussdecode.snapshot.item import Wanted
from gaussdecode.snapshot.output import Output
from gaussdecode.snapshot.read import Counts, TableTask
from gaussdecode.snapshot.tools import Tools
from gaussdecode.source.export import Chunk, cut


def take_at_once(tools: Tools, group: Sequence[Wanted]) -> None:
    """Land tables in one entry.

    Raises:
        HoldLostError: the session ended, or transactions on the server ran too long.
        SourceError: a table cannot be read, or the server failed.
    """
    since_n = tools.log.next_n - 1
    with tools.held({item.directory: () for item in group}) as (hold, view):
        outputs: list[Output] = []
        work: list[tuple[TableTask, Chunk, Counts]] = []
        try:
            with tools.reader() as reader:
                reader.begin(view)
                for item in group:
                    task = tools.task(reader, item)
                    chunks = cut(task.shape.leaves, tools.chunk_pages)
                    counts = tools.begin_progress(item, task, len(chunks))
                    outputs.append(tools.output(item, task, view, since_n))
                    work += [(task, chunk, counts) for chunk in chunks]
                reader.end()
            by_task = {id(output.task): output for output in outputs}
            tools.readers().read_all(view, work, lambda task, _, rows: by_task[id(task)].land(rows))
            tools.commit(hold, view, outputs)
        except BaseException:
            for output in outputs:
                output.abandon()
            raise
