import xml.etree.ElementTree as ElementTree

from geotrain.reports.charts import Part, stacked_bar


def test_a_stacked_bar_places_its_parts_and_the_limit():
    parts = [Part(key="static", label="a & b", value=1.0), Part(key="held", label="c", value=3.0)]

    root = ElementTree.fromstring(stacked_bar(parts, total=8.0, title="memory", description="what", limit=6.0))

    assert [(rect.get("class"), rect.get("x"), rect.get("width")) for rect in root.iter("rect")] == [
        ("track", "0", "1000"),
        ("c-static", "0.00", "125.00"),
        ("c-held", "125.00", "375.00"),
        ("limit", "750.00", "5"),
    ]
    assert [title.text for title in root.iter("title")] == ["memory", "a & b", "c"]
