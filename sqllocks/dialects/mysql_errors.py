"""What the errors of MySQL and MariaDB mean, whatever driver raises them."""

from __future__ import annotations

from collections.abc import Mapping

from sqllocks.dialects.base import FaultKind

__all__ = ["fault_kind"]

# https://dev.mysql.com/doc/mysql-errors/en/ and https://mariadb.com/kb/en/mariadb-error-codes/
_KINDS: Mapping[int, FaultKind] = {
    1213: FaultKind.CONFLICT,  # deadlock, or certification refused on Galera and group replication
    1205: FaultKind.LOCKED,  # lock wait timeout
    1020: FaultKind.CONFLICT,  # record has changed since last read
    1317: FaultKind.LOCKED,  # query interrupted
    1969: FaultKind.LOCKED,  # MariaDB max_statement_time
    3024: FaultKind.LOCKED,  # MySQL max_execution_time
    3572: FaultKind.LOCKED,  # not waited for a lock
    1050: FaultKind.CONFLICT,  # table exists: somebody else created it just now
    1146: FaultKind.NO_TABLE,
    1049: FaultKind.NO_SCHEMA,  # unknown database
    1054: FaultKind.NO_TABLE,  # unknown column
    1290: FaultKind.READ_ONLY,  # --read-only
    1792: FaultKind.READ_ONLY,  # read-only transaction
    1836: FaultKind.READ_ONLY,  # read-only mode
    1142: FaultKind.FORBIDDEN,  # table access denied
    1143: FaultKind.FORBIDDEN,  # column access denied
    1064: FaultKind.UNSUPPORTED,  # syntax error
    1235: FaultKind.UNSUPPORTED,  # not supported yet
    1273: FaultKind.UNSUPPORTED,  # unknown collation
    1305: FaultKind.UNSUPPORTED,  # no such function
    1665: FaultKind.UNSUPPORTED,  # statement-based binary log refuses READ COMMITTED
    1040: FaultKind.GONE,  # too many connections
    1047: FaultKind.GONE,  # Galera node is not part of the cluster
    1053: FaultKind.GONE,  # server shutdown in progress
    1927: FaultKind.GONE,  # MariaDB: connection was killed
    4031: FaultKind.GONE,  # closed for inactivity
}
_CLIENT_ERRORS = range(2000, 2100)


def fault_kind(error: BaseException) -> FaultKind | None:
    """Classify a driver's error, or return ``None`` for one that is not the server's."""
    number = error.args[0] if error.args else None
    if not isinstance(number, int):
        return None
    if number in _CLIENT_ERRORS or number == 0:  # PyMySQL: 0 on a closed connection
        return FaultKind.GONE
    return _KINDS.get(number, FaultKind.OTHER)
