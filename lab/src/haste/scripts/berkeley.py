"""Transactional updates of a Berkeley DB table: `load` fills it, `update` changes records one transaction each."""

import os
import random
import sys

from bsddb3 import db

phase, directory, kind, records, value_bytes, transactions, cache_bytes, seed = sys.argv[1:9]
records, value_bytes, transactions = int(records), int(value_bytes), int(transactions)
draw = random.Random(int(seed))

environment = db.DBEnv()
environment.set_cachesize(0, int(cache_bytes), 1)
environment.set_lg_max(8 << 20)
environment.set_lk_max_locks(10000)
environment.set_lk_max_objects(10000)
# Private: its regions are memory of this process, not files.
flags = db.DB_CREATE | db.DB_PRIVATE | db.DB_INIT_MPOOL | db.DB_INIT_TXN | db.DB_INIT_LOG | db.DB_INIT_LOCK
environment.open(directory, flags | (db.DB_RECOVER if phase == "update" else 0))
table = db.DB(environment)
table.set_pagesize(4096)
table.open("table.db", dbtype=db.DB_BTREE if kind == "btree" else db.DB_HASH,
           flags=db.DB_CREATE | db.DB_AUTO_COMMIT)


def key(number):
    # Spread over the key space, so that neighbours in time are none in the table.
    return b"%016x" % (number * 0x9E3779B97F4A7C15 % (1 << 64))


if phase == "load":
    at = 0
    while at < records:
        transaction = environment.txn_begin(flags=db.DB_TXN_NOSYNC)
        for number in range(at, min(at + 500, records)):
            table.put(key(number), draw.randbytes(value_bytes), txn=transaction)
        transaction.commit(db.DB_TXN_NOSYNC)
        at += 500
    environment.txn_checkpoint()
else:
    for number in range(transactions):
        which = key(draw.randrange(records))
        transaction = environment.txn_begin()
        value = table.get(which, txn=transaction, flags=db.DB_RMW)
        if value is None or len(value) != value_bytes:
            sys.exit(f"record {which!r} is not what was loaded")
        table.put(which, number.to_bytes(8, "little") + value[8:], txn=transaction)
        transaction.commit()
table.close()
environment.close()
print(sum(os.path.getsize(os.path.join(directory, name)) for name in os.listdir(directory)))
