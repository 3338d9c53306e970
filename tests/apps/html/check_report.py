"""Opens a report from its file in a real browser and looks at what became of it.

usage: check_report.py REPORT.html [--drawn] [--pictures FOLDER]

Exit code 0: all is well; 1: what is wrong was printed; 77: no browser here.
"""
import argparse
import base64
import json
import os
import pathlib
import signal
import sys

import browser

LIMIT = 200  # seconds for all of it; it takes three on an idle machine

# The contrast of every text with what is behind it (WCAG 2.2, 1.4.3), and of every drawn mark (1.4.11).
CONTRAST = r"""
(() => {
  const numbers = (text) => { const n = text.match(/[\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; };
  const over = (top, under) => top.slice(0, 3).map((c, i) => c * top[3] + under[i] * (1 - top[3])).concat(1);
  const light = ([r, g, b]) => { const [x, y, z] = [r, g, b].map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z; };
  const behind = (node) => { const stack = []; for (let n = node; n; n = n.parentElement) stack.push(numbers(getComputedStyle(n).backgroundColor));
    return stack.reverse().reduce((under, top) => over(top, under), [255, 255, 255, 1]); };
  const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  const bad = [];
  for (const node of document.querySelectorAll('body *')) {
    const style = getComputedStyle(node);
    if (!node.getClientRects().length || ['SCRIPT', 'NOSCRIPT'].includes(node.tagName)) continue;
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    const drawn = node.matches('svg .line, svg .point, svg .whisker');
    if (!own && !drawn) continue;
    const colour = numbers(drawn ? style.stroke : node.tagName === 'text' ? style.fill : style.color);
    const under = behind(node.closest('svg')?.parentElement ?? node);
    const found = ratio(over(colour, under), under), least = own ? 4.5 : 3;
    if (found < least) bad.push(`${node.tagName}.${node.getAttribute('class')} ${found.toFixed(2)} '${node.textContent.slice(0, 30)}'`);
  }
  return bad;
})()
"""

# What each figure shows: the vertices or marks of each series.
DRAWN = r"""
[...document.querySelectorAll('figure[data-chart]')].map((figure) => ({
  chart: Number(figure.dataset.chart),
  size: figure.querySelector('.plot svg')?.getBoundingClientRect().toJSON(),
  series: Object.fromEntries([...figure.querySelectorAll('.plot g[data-series]')].map((group) => [group.dataset.series,
    [...group.querySelectorAll('.mark')].map((mark) => mark.tagName === 'path' && mark.classList.contains('line')
      ? mark.getAttribute('d').match(/[ML]/g).length : 1).reduce((a, b) => a + b, 0)])),
  gaps: figure.querySelectorAll('.gap').length, notes: figure.querySelectorAll('.note').length,
  legend: figure.querySelectorAll('.legend .entry').length,
  text: figure.textContent }))
"""


def finite(value, axis):
    return isinstance(value, (int, float)) and abs(value) < 1e300 and (not axis["log"] or value > 0)


def expected_marks(chart):
    """How many values of each series have a place in the chart."""
    marks = []
    for series in chart["series"]:
        xs = series.get("x", [1] * len(series["y"]))
        x_axis = chart["x"] if "x" in series else {"log": False}
        marks.append(sum(finite(x, x_axis) and finite(y, chart["y"]) for x, y in zip(xs, series["y"])))
    return marks


class Check:
    def __init__(self, page, url, pictures):
        self.page, self.url, self.pictures, self.wrong = page, url, pictures, []

    def that(self, ok, text):
        if not ok:
            self.wrong.append(text)

    def picture(self, name):
        """The whole page, in pieces that an eye can take in."""
        if not self.pictures:
            return
        size = self.page.call("Page.getLayoutMetrics")["cssContentSize"]
        for piece, top in enumerate(range(0, int(size["height"]), 1400)):
            clip = {"x": 0, "y": top, "width": size["width"], "height": min(1400, size["height"] - top), "scale": 1}
            png = self.page.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)["data"]
            (pathlib.Path(self.pictures) / f"{name}-{piece}.png").write_bytes(base64.b64decode(png))

    def quiet(self, where):
        """Nothing on the console, nothing asked of a network or another file."""
        for method, event in self.page.events:
            if method == "Runtime.exceptionThrown":
                self.wrong.append(f"{where}: exception {event['exceptionDetails'].get('exception', {}).get('description')}")
            elif method == "Runtime.consoleAPICalled" and event["type"] in ("error", "warning", "assert"):
                self.wrong.append(f"{where}: console {event['args']}")
            elif method == "Log.entryAdded" and event["entry"]["level"] in ("error", "warning"):
                self.wrong.append(f"{where}: log {event['entry']['text']}")
            elif method == "Network.requestWillBeSent":
                asked = event["request"]["url"]
                if asked.split("#")[0] != self.url and not asked.startswith("data:"):
                    self.wrong.append(f"{where}: asked for {asked}")

    def charts(self, where):
        charts = json.loads(self.page.run("document.getElementById('charts').textContent"))
        drawn = self.page.run(DRAWN)
        self.that(len(drawn) == len(charts), f"{where}: {len(charts)} charts, {len(drawn)} figures")
        for figure in drawn:
            chart = charts[figure["chart"]]
            name = f"{where}: chart {figure['chart']} '{chart['title'][:30]}'"
            for s, expected in enumerate(expected_marks(chart)):
                if not chart["series"][s]["y"]:
                    continue
                found = figure["series"].get(str(s))
                self.that(found == expected, f"{name}: series {s} shows {found} of {expected} values")
            missing = sum(len(s["y"]) for s in chart["series"]) - sum(expected_marks(chart))
            self.that(not missing or figure["notes"], f"{name}: {missing} values are missing and nobody says so")
            self.that(figure["size"] and figure["size"]["width"] > 200 and figure["size"]["height"] > 150, f"{name}: size {figure['size']}")
            self.that(figure["legend"] >= sum(bool(series["y"]) for series in chart["series"]), f"{name}: {figure['legend']} legend entries")
        return charts

    def structure(self):
        """Headings in order, landmarks, ids once, names for what can be focused."""
        levels = self.page.run("[...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].map((h) => Number(h.tagName[1]))")
        self.that(levels.count(1) == 1 and levels[0] == 1, f"headings: {levels}")
        self.that(all(b <= a + 1 for a, b in zip(levels, levels[1:])), f"headings leave a level out: {levels}")
        for landmark in ("header", "main"):
            self.that(self.page.run(f"document.querySelectorAll('{landmark}').length") == 1, f"one {landmark} expected")
        twice = self.page.run("[...document.querySelectorAll('[id]')].map((n) => n.id).filter((id, i, all) => all.indexOf(id) !== i)")
        self.that(not twice, f"ids used twice: {twice}")
        dead = self.page.run("[...document.querySelectorAll('a[href^=\"#\"]')].map((a) => a.getAttribute('href').slice(1)).filter((id) => !document.getElementById(id))")
        self.that(not dead, f"links to nowhere: {dead}")
        dead = self.page.run("[...document.querySelectorAll('[aria-labelledby]')].map((n) => n.getAttribute('aria-labelledby')).filter((id) => !document.getElementById(id))")
        self.that(not dead, f"labels to nowhere: {dead}")
        named = ("button", "link", "image", "region", "table", "figure", "columnheader", "heading", "article", "navigation")
        bare = self.page.run("document.querySelectorAll('[tabindex=\"0\"]:not([aria-label])').length")
        self.that(bare == 0, f"{bare} places of the keyboard without a name")
        for node in self.page.call("Accessibility.getFullAXTree")["nodes"]:
            role = node.get("role", {}).get("value")
            if role in named and not node["ignored"] and not node.get("name", {}).get("value"):
                self.wrong.append(f"a {role} without a name")

    def sorting(self):
        """Each column, by keyboard, both ways."""
        for table in range(self.page.run("document.querySelectorAll('table.sortable').length")):
            columns = self.page.run(f"document.querySelectorAll('table.sortable')[{table}].tHead.rows[0].cells.length")
            for column in range(columns):
                cell = f"document.querySelectorAll('table.sortable')[{table}].tHead.rows[0].cells[{column}]"
                for direction in ("ascending", "descending"):
                    self.page.run(f"{cell}.querySelector('button').focus()")
                    self.page.press("Enter")
                    found = self.page.run(f"{cell}.getAttribute('aria-sort')")
                    self.that(found == direction, f"table {table} column {column}: aria-sort {found}, expected {direction}")
                    keys = self.page.run(
                        f"[...document.querySelectorAll('table.sortable')[{table}].tBodies[0].rows].map((r) => r.cells[{column}])"
                        ".map((c) => c.dataset.key || c.textContent.trim()).filter((k) => k !== '')"
                        ".map((k) => Number.isNaN(Number(k)) ? k : Number(k))")
                    if len({type(k) in (int, float) for k in keys}) < 2:
                        order = sorted(keys, reverse=direction == "descending")
                        self.that(keys == order, f"table {table} column {column} {direction}: {keys}")

    def legend(self):
        """A series goes and comes back by keyboard."""
        buttons = self.page.run("document.querySelectorAll('.legend button').length")
        for i in range(buttons):
            button = f"document.querySelectorAll('.legend button')[{i}]"
            groups = f"{button}.closest('figure').querySelectorAll('.plot g[data-series]').length"
            before = self.page.run(groups)
            for pressed, expected in (("false", before - 1), ("true", before)):
                self.page.run(f"{button}.focus()")
                self.page.press(" ")
                self.that(self.page.run(f"{button}.getAttribute('aria-pressed')") == pressed, f"legend {i}: not {pressed}")
                self.that(self.page.run(groups) == expected, f"legend {i}: {self.page.run(groups)} series shown, expected {expected}")

    def readouts(self):
        """Values by arrow keys and under the pointer."""
        box = "document.querySelectorAll('.plot')[{}].querySelector('.readout')"
        for i in range(self.page.run("document.querySelectorAll('.plot').length")):
            here = box.format(i)
            self.page.run(f"{here}.parentElement.scrollIntoView({{block: 'center'}}); {here}.parentElement.focus()")
            self.page.press("ArrowRight")
            first = self.page.run(f"{here}.hidden ? '' : {here}.innerText")
            self.page.press("End")
            last = self.page.run(f"{here}.hidden ? '' : {here}.innerText")
            self.that(first and last and first != last, f"plot {i}: arrow keys read '{first}', '{last}'")
            self.page.press("Escape")
            self.that(self.page.run(f"{here}.hidden"), f"plot {i}: Escape leaves the read-out")
            frame = self.page.run(f"{here}.parentElement.getBoundingClientRect().toJSON()")
            self.page.move(frame["x"] + frame["width"] * 0.6, frame["y"] + frame["height"] * 0.4)
            self.that(self.page.run(f"!{here}.hidden && {here}.innerText.length > 3"), f"plot {i}: the pointer reads nothing")
            overlap = self.page.run(f"{here}.getBoundingClientRect().right <= innerWidth && {here}.getBoundingClientRect().left >= 0")
            self.that(overlap, f"plot {i}: the read-out leaves the screen")

    def data_tables(self, charts):
        """Each chart's values as a table."""
        for figure in self.page.run("[...document.querySelectorAll('figure[data-chart]')].map((f) => Number(f.dataset.chart))"):
            at = f"document.querySelector('figure[data-chart=\"{figure}\"] details')"
            self.page.run(f"new Promise((done) => {{ const d = {at}; d.addEventListener('toggle', () => setTimeout(done)); d.open = true; }})")
            rows = self.page.run(f"{at}.querySelectorAll('tbody tr').length")
            expected = sum(len(series["y"]) for series in charts[figure]["series"])
            self.that(rows == expected, f"data of chart {figure}: {rows} rows, expected {expected}")
            self.page.run(f"{at}.open = false")

    def narrow(self, where, screen):
        wide = self.page.run("document.scrollingElement.scrollWidth")  # a phone's innerWidth grows with it
        self.that(wide <= screen, f"{where}: {wide} px wide on a screen of {screen}")

    def contrast(self, where):
        bad = self.page.run(CONTRAST)
        self.that(not bad, f"{where}: contrast {bad[:8]}")

    def drawn(self):
        """What holds of any charts, however odd."""
        for name, width in {"desktop": 1200, "phone": 360}.items():
            self.page.open(self.url, width=width)
            charts = self.charts(name)
            self.narrow(name, width)
            self.data_tables(charts)
            self.quiet(name)
            self.picture("odd-" + name)
        return self.wrong

    def all(self):
        for name, options in {"desktop": {}, "dark": {"dark": True}, "phone": {"width": 360, "height": 740},
                              "phone-dark": {"width": 360, "height": 740, "dark": True}}.items():
            self.page.open(self.url, **options)
            self.charts(name)
            self.narrow(name, options.get("width", 1200))
            self.contrast(name)
            self.quiet(name)
            self.picture(name)
        self.page.open(self.url)
        charts = self.charts("again")
        self.structure()
        self.sorting()
        self.legend()
        self.readouts()
        self.picture("read-out")
        self.data_tables(charts)
        self.quiet("in use")
        self.page.open(self.url, width=800, media="print", dark=True)  # paper is white
        self.charts("print")
        self.contrast("print")
        self.that(self.page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)", "print: paper is not white")
        self.quiet("print")
        if self.pictures:
            pdf = self.page.call("Page.printToPDF", printBackground=True)
            (pathlib.Path(self.pictures) / "print.pdf").write_bytes(base64.b64decode(pdf["data"]))
            self.picture("print")
        return self.wrong


def too_long(*_):
    raise TimeoutError(f"the browser took more than {LIMIT} s")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("report")
    parser.add_argument("--pictures", help="an existing folder for screenshots")
    parser.add_argument("--drawn", action="store_true", help="look at the drawing of charts alone")
    arguments = parser.parse_args()
    program = browser.find()
    if not program:
        print("no Chromium here: apt-get install chromium brings one")
        return 77
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(LIMIT)
    with browser.Browser(program) as page:
        check = Check(page, pathlib.Path(os.path.abspath(arguments.report)).as_uri(), arguments.pictures)
        wrong = check.drawn() if arguments.drawn else check.all()
    print("\n".join(wrong) if wrong else "all is well")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
