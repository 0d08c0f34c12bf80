"""The figures of a report as frames of pandas or polars."""

from typing import Any, Dict, List


def frames(report: Dict[str, Any], library: str = "pandas") -> Dict[str, Any]:
    """The tables of a report of ``analyze`` as frames, by name.

    ``worst`` has a row for each interval and kind: seconds, and pages written with repetitions
    (``adversarial_pages``) and without (``unique_pages``). ``skew`` has a row for each share: the
    percentage of all page writes, and the fewest pages that get them. A page has 4096 bytes.

    ``library`` is ``"pandas"`` or ``"polars"``, which must be installed.
    """
    if library == "pandas":
        from pandas import DataFrame
    elif library == "polars":
        from polars import DataFrame
    else:
        raise ValueError(f"library {library!r}: expected 'pandas' or 'polars'")
    worst: List[Dict[str, Any]] = [
        {
            "interval_s": float(seconds),
            "kind": kind,
            "adversarial_pages": kinds[kind]["adversarial_pages"],
            "unique_pages": kinds[kind]["unique_pages"],
        }
        for seconds, kinds in report["worst"].items()
        for kind in ("tumbling", "sliding")
    ]
    skew = [
        {"share_percent": float(share), "pages": pages}
        for share, pages in report["skew_pages"].items()
    ]
    return {"worst": DataFrame(worst), "skew": DataFrame(skew)}
