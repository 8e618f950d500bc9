"""Remove what an apply wrote and no version names; vacuum removes what remains."""

from collections.abc import Sequence

from gaussdecode.spark.log.place import files_below
from gaussdecode.spark.merge.work import Work
from gaussdecode.spark.target.state_file import FOLDERS
from gaussdecode.spark.target.store import Target


class Leftovers:
    """The files of one apply, in the tables that it works on.

    Args:
        store: the target.
        token: in the name of each of its files.
    """

    def __init__(self, store: Target, token: str) -> None:
        self._store = store
        self._token = token
        self._first: dict[str, int] = {}  # by table, the first version that this apply may make

    def expect(self, works: Sequence[Work]) -> None:
        """Files of these tables follow."""
        for work in works:
            self._first[work.table] = 0 if work.version is None else work.version.v + 1

    def keep(self, table: str) -> None:
        """Leave the files of a table: the store may have its commit, or still make it."""
        del self._first[table]

    def remove(self) -> None:
        """Remove the files that no version names."""
        for table, first in self._first.items():
            log, root = self._store.log(table), self._store.table_root(table)
            named = log.paths()
            # On a store another run may have gone on: our version still names what it removed.
            for v in (v for v in log.versions() if v >= first):
                named |= log.version(v).paths
            for folder in FOLDERS:
                for path in (f"{folder}/{file.path}" for file in files_below(root / folder)):
                    if self._token in path and path not in named:
                        (root / path).unlink(missing_ok=True)
