"""Counters, gauges and histograms, and the text that a scrape makes of them."""

import math

import pytest

from app.metrics import instruments
from app.metrics.exposition import format_families
from app.metrics.instruments import Counter, Gauge, Histogram, family
from tests.metrics.promtool import check_metrics


def text_of(*made: Counter | Gauge | Histogram) -> str:
    return format_families(each.collect() for each in made)


def test_a_counter_counts_by_labels() -> None:
    counter = Counter("requests_total", "Requests.", ("verb", "code"))
    counter.inc("GET", "200")
    counter.inc("GET", "200")
    counter.add(0.5, "GET", "404")

    assert text_of(counter) == (
        "# HELP requests_total Requests.\n# TYPE requests_total counter\n"
        'requests_total{verb="GET",code="200"} 2\nrequests_total{verb="GET",code="404"} 0.5\n'
    )


def test_what_has_no_labels_is_there_from_the_start() -> None:
    assert text_of(Counter("a_total", "A.")).endswith("a_total 0\n")
    assert "b_count 0" in text_of(Histogram("b", "B."))
    assert text_of(Counter("c_total", "C.", ("x",))) == "# HELP c_total C.\n# TYPE c_total counter\n"
    check_metrics(text_of(Counter("c_total", "C.", ("x",))))


def test_a_gauge_rises_falls_and_forgets() -> None:
    gauge = Gauge("open", "Open.", ("kind",))
    gauge.add(2, "a")
    gauge.add(-1, "a")
    gauge.set(7, "b")
    gauge.remove("b")

    assert text_of(gauge).splitlines()[2:] == ['open{kind="a"} 1']


def test_a_histogram_counts_up_to_each_bound() -> None:
    histogram = Histogram("seconds", "Seconds.", buckets=(0.1, 1.0))
    for value in (0.1, 0.05, 0.5, 3.0):
        histogram.observe(value)

    assert text_of(histogram).splitlines()[2:] == [
        'seconds_bucket{le="0.1"} 2',
        'seconds_bucket{le="1"} 3',
        'seconds_bucket{le="+Inf"} 4',
        "seconds_sum 3.65",
        "seconds_count 4",
    ]


def test_values_of_labels_may_be_anything() -> None:
    gauge = Gauge("named", "Named \\ by\nlines.", ("name",))
    gauge.set(math.inf, 'a"b\\c\nd')

    assert text_of(gauge) == (
        '# HELP named Named \\\\ by\\nlines.\n# TYPE named gauge\nnamed{name="a\\"b\\\\c\\nd"} +Inf\n'
    )
    check_metrics(text_of(gauge))


@pytest.mark.parametrize("made", [Counter("a_total", "A.", ("x",)), Histogram("a", "A.", ("x",), (1.0,))])
def test_there_are_only_so_many_series(made: Counter | Histogram, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instruments, "MOST_SERIES", 3)
    for number in range(10):
        made.inc(str(number)) if isinstance(made, Counter) else made.observe(1, str(number))

    lines = [line for line in text_of(made).splitlines() if line.startswith(("a_total", "a_count"))]
    assert [line.rpartition(" ")[2] for line in lines] == ["1", "1", "1", "7"]
    assert 'x="other"' in lines[-1]


def test_all_instruments_together_satisfy_prometheus() -> None:
    counter, histogram = Counter("a_total", "A.", ("x",)), Histogram("b_seconds", "B.", ("x",))
    counter.inc("1")
    histogram.observe(0.2, "1")
    computed = family("c_bytes", "C.", "gauge", [({"y": "1"}, 1e18), ({"y": "2"}, 0.25)])

    check_metrics(text_of(counter, histogram) + format_families([computed]))
