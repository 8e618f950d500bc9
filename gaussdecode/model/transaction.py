"""Keep the parts of a transaction by which it is recognised when the server sends it again."""

import dataclasses
import datetime as dt

from gaussdecode.model.lsn import Lsn

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclasses.dataclass(frozen=True, slots=True)
class TransactionMark:
    """What tells one transaction from another at the same place of another history.

    Attributes:
        end_lsn: end of its commit record.
        xid: XID of the transaction; 0 where it is not known.
        time_us: time of the commit, microseconds since 1970; 0 where it is not known.
        row_count: rows of it that land, over all tables.
        has_origin: it was applied from another server.
        is_of_new_tables: nothing of any of its tables landed before or with it.
        user: name of its user; empty where it is not known.
        csn: commit sequence number; 0 where it has none, or it is not known.
    """

    end_lsn: int
    xid: int
    time_us: int
    row_count: int
    has_origin: bool
    is_of_new_tables: bool = False
    user: str = ""
    csn: int = 0

    @property
    def may_be_absent(self) -> bool:
        """Whether settings decide that it lands: without rows, or of another server."""
        return self.row_count == 0 or self.has_origin

    def is_same(self, other: "TransactionMark") -> bool:
        """Whether two marks are of one transaction, as far as both sides know."""
        return self.end_lsn == other.end_lsn and all(
            mine == theirs or not mine or not theirs
            for mine, theirs in (
                (self.xid, other.xid),
                (self.time_us, other.time_us),
                (self.csn, other.csn),
            )
        )

    def __str__(self) -> str:
        """Name it to an operator."""
        xid = str(self.xid) if self.xid else "of unknown number"
        csn = f" with CSN {self.csn}" if self.csn else ""
        text = f"transaction {xid}{csn} that ends at {Lsn(self.end_lsn)}"
        if not self.time_us:
            return text
        return f"{text}, committed {(_EPOCH + dt.timedelta(microseconds=self.time_us)).isoformat()}"
