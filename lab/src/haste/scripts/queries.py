"""Two databases of the shape of the slides' and queries over them, in SQLite: `load` makes one, `query` asks it.

biology  genes with annotations and a graph of interactions (its degrees as uneven as such graphs'): which genes are two
         interactions away from one, with a property
sky      detections of objects in a survey, by zone of declination: what changed its brightness within a cone
"""

import random
import sqlite3
import sys

phase, which, path, rows, queries, cache_kib, seed = sys.argv[1:8]
rows, queries = int(rows), int(queries)
draw = random.Random(int(seed))

connection = sqlite3.connect(path)
connection.execute(f"PRAGMA cache_size = -{int(cache_kib)}")
connection.execute("PRAGMA mmap_size = 0")


def load_biology():
    connection.execute("PRAGMA journal_mode = OFF")
    connection.execute("CREATE TABLE gene (id INTEGER PRIMARY KEY, chromosome INTEGER, start INTEGER, kind TEXT, note TEXT)")
    connection.execute("CREATE TABLE interaction (a INTEGER, b INTEGER, score REAL)")
    genes = max(rows // 16, 100)
    kinds = ["kinase", "receptor", "ribosomal", "unknown", "transport"]
    connection.executemany("INSERT INTO gene VALUES (?, ?, ?, ?, ?)",
                           ((gene, draw.randrange(1, 24), draw.randrange(1 << 28), draw.choice(kinds),
                             "%0120x" % draw.getrandbits(480)) for gene in range(genes)))
    # Few genes have most interactions: the square of a uniform number picks them.
    connection.executemany("INSERT INTO interaction VALUES (?, ?, ?)",
                           ((int(draw.random() ** 2 * genes), draw.randrange(genes), draw.random())
                            for _ in range(rows)))
    connection.execute("CREATE INDEX of_a ON interaction (a, score)")
    connection.commit()


def query_biology():
    genes = max(rows // 16, 100)
    for _ in range(queries):
        gene = draw.randrange(genes)
        yield connection.execute(
            "SELECT DISTINCT far.id FROM interaction near JOIN interaction next ON next.a = near.b "
            "JOIN gene far ON far.id = next.b WHERE near.a = ? AND near.score > 0.5 AND next.score > 0.5 "
            "AND far.kind = 'kinase' LIMIT 200", (gene,)).fetchall()


def load_sky():
    connection.execute("PRAGMA journal_mode = OFF")
    connection.execute("CREATE TABLE detection (object INTEGER, zone INTEGER, ra REAL, dec REAL, night INTEGER, mag REAL, "
                       "shape BLOB)")
    objects = max(rows // 8, 100)
    places = [(draw.random() * 360, draw.random() * 60 - 30, 14 + draw.random() * 8) for _ in range(objects)]

    def detections():
        # In the order of the nights, as a survey's are.
        for number in range(rows):
            item = draw.randrange(objects)
            ra, dec, mag = places[item]
            yield (item, int((dec + 90) * 10), ra, dec, number * 300 // rows, mag + draw.gauss(0, 0.1),
                   draw.randbytes(80))
    connection.executemany("INSERT INTO detection VALUES (?, ?, ?, ?, ?, ?, ?)", detections())
    connection.execute("CREATE INDEX of_zone ON detection (zone, ra)")
    connection.commit()


def query_sky():
    for _ in range(queries):
        ra, dec, radius = draw.random() * 359, draw.random() * 58 - 29, 0.5
        low, high = int((dec - radius + 90) * 10), int((dec + radius + 90) * 10)
        yield connection.execute(
            "SELECT object, count(*), max(mag) - min(mag) AS change FROM detection "
            "WHERE zone BETWEEN ? AND ? AND ra BETWEEN ? AND ? AND dec BETWEEN ? AND ? "
            "GROUP BY object HAVING count(*) >= 3 AND change > 0.2",
            (low, high, ra - radius, ra + radius, dec - radius, dec + radius)).fetchall()


if phase == "load":
    {"biology": load_biology, "sky": load_sky}[which]()
else:
    found = sum(len(answer) for answer in {"biology": query_biology, "sky": query_sky}[which]())
    print(found)
connection.close()
