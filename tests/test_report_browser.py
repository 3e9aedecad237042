"""Reports in a real browser: Debian's Chromium, without a window. Where there is none, the tests
say so and are skipped."""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from selenium import webdriver
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from etude.report import serve
from etude.report.curves import Detail
from etude.report.write import write_report
from tests import pages
from tests.test_report import HOSTILE, ROOT

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (BROWSER and DRIVER), reason="no chromium and chromedriver: apt-get install chromium-driver"
)
FLAGS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars"
)
OPEN_SECONDS, PAGE_BYTES = 3.0, 10_000_000


class Browser:
    """One for all tests: it takes longer to start than any of them."""

    def __init__(self, home: str):
        options = webdriver.ChromeOptions()
        options.binary_location = str(BROWSER)
        for flag in (*FLAGS.split(), f"--user-data-dir={home}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))

    def show(self, url: str, scheme: str = "light", width: int = 1200, height: int = 900) -> None:
        """Opens a page as a desktop, or a phone, would."""
        self.ask("Emulation.setEmulatedMedia", features=[scheme_of(scheme)])
        phone = width < 600
        size = dict(width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.ask("Emulation.setDeviceMetricsOverride", **size)
        self.ask("Emulation.setTouchEmulationEnabled", enabled=phone)
        self.driver.get(url)

    def ask(self, command: str, **arguments: object) -> None:
        self.driver.execute_cdp_cmd(command, arguments)

    def run(self, script: str, *arguments: object):
        return self.driver.execute_script(script, *arguments)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        return self.all(selector)[0]

    def wait(self, holds: Callable[[], object], seconds: float = 20.0) -> None:
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, "it never came about"
            time.sleep(0.02)

    def drawn(self, figure: str) -> None:
        """Scrolls to a figure, and waits until it is there."""
        self.run("document.querySelector(arguments[0]).scrollIntoView({block: 'center'})", figure)
        self.wait(lambda: self.all(f"{figure}[data-drawn] .main-svg"))

    def complaints(self) -> list[dict]:
        return self.driver.get_log("browser")


def scheme_of(name: str) -> dict[str, str]:
    return {"name": "prefers-color-scheme", "value": name}


@pytest.fixture(scope="module")
def session() -> Iterator[Browser]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        browser = Browser(home)
        yield browser
        browser.driver.quit()


@pytest.fixture
def browser(session) -> Iterator[Browser]:
    """Whatever a test does, the browser has nothing to complain about."""
    session.complaints()
    yield session
    assert session.complaints() == []


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> str:
    """Two runs and a reproduction."""
    home = tmp_path_factory.mktemp("runs")
    runs = [pages.training(home / x, rule=x, seed=i) for i, x in enumerate(("ppo", "disco103"))]
    (runs[0] / "play.gif").write_bytes(pages.GIF)
    paths = [*map(str, runs), str(pages.reproduction(home / "it"))]
    return write_report(paths, str(home / "report.html")).as_uri()


COMMON = "#overview-1"
"""The figure of both runs."""


def test_hovering_over_a_curve_tells_its_numbers(browser, page):
    browser.show(page)
    browser.drawn(COMMON)
    plot = browser.one(f"{COMMON} .nsewdrag")
    ActionChains(browser.driver).move_to_element(plot).perform()
    browser.wait(lambda: browser.all(f"{COMMON} .hoverlayer text"))
    told = " ".join(x.text for x in browser.all(f"{COMMON} .hoverlayer text"))
    assert "ppo" in told and "disco103" in told and " to " in told


def traces_in(browser: Browser, figure: str) -> int:
    """Lines and bands."""
    return len(browser.all(f"{figure} .scatterlayer .trace"))


def test_the_legend_hides_and_shows_a_line_with_its_band(browser, page):
    browser.show(page)
    browser.drawn(COMMON)
    assert traces_in(browser, COMMON) == 4
    button = browser.one(f"{COMMON} .legend button")
    assert (button.text, button.get_attribute("aria-pressed")) == ("ppo", "true")
    button.click()
    browser.wait(lambda: traces_in(browser, COMMON) == 2)
    button = browser.one(f"{COMMON} .legend button")
    assert button.get_attribute("aria-pressed") == "false"
    button.send_keys(Keys.ENTER)  # the keyboard does the same
    browser.wait(lambda: traces_in(browser, COMMON) == 4)


def axis_of(browser: Browser, figure: str, name: str) -> dict:
    script = "const a = document.querySelector(arguments[0])._fullLayout[arguments[1]];"
    return browser.run(f"{script} return {{type: a.type, range: a.range}}", f"{figure} .plot", name)


def test_axes_go_logarithmic_where_numbers_allow(browser, page):
    browser.show(page)
    browser.drawn(COMMON)
    log_x, log_y = (browser.one(f"{COMMON} [data-name={x}]") for x in ("logX", "logY"))
    assert not log_y.is_enabled()  # returns are below 0
    assert axis_of(browser, COMMON, "xaxis")["type"] == "linear"
    log_x.click()
    browser.wait(lambda: axis_of(browser, COMMON, "xaxis")["type"] == "log")
    low, high = axis_of(browser, COMMON, "xaxis")["range"]
    assert 1.5 < low < high < 4  # from 100 to 4,000, in powers of ten
    assert browser.one(f"{COMMON} [data-name=logX]").get_attribute("aria-pressed") == "true"


def test_a_drag_zooms_and_a_button_shows_all_again(browser, page):
    browser.show(page)
    browser.drawn(COMMON)
    reset = browser.one(f"{COMMON} .reset")
    before = axis_of(browser, COMMON, "xaxis")["range"]
    assert not reset.is_displayed()
    plot = browser.one(f"{COMMON} .nsewdrag")
    move = ActionChains(browser.driver).move_to_element(plot).click_and_hold()
    move.move_by_offset(120, 40).release().perform()
    browser.wait(reset.is_displayed)
    low, high = axis_of(browser, COMMON, "xaxis")["range"]
    assert high - low < 0.6 * (before[1] - before[0])
    reset.click()
    browser.wait(lambda: axis_of(browser, COMMON, "xaxis")["range"] == before)


def test_tables_sort_by_click_and_by_keyboard(browser, page):
    browser.show(page)
    table = next(x for x in browser.all("table") if "state" in x.text)

    def runs() -> list[str]:
        return [x.text for x in table.find_elements(By.CSS_SELECTOR, "tbody td:first-child")]

    heads = {x.text: x for x in table.find_elements(By.CSS_SELECTOR, "th")}
    assert runs() == ["ppo", "disco103", "it"]
    heads["run"].find_element(By.TAG_NAME, "button").click()
    assert runs() == ["disco103", "it", "ppo"]
    assert heads["run"].get_attribute("aria-sort") == "ascending"
    heads["return"].find_element(By.TAG_NAME, "button").send_keys(Keys.ENTER)
    first = runs()
    assert heads["return"].get_attribute("aria-sort") == "descending"
    assert heads["run"].get_attribute("aria-sort") is None
    heads["return"].find_element(By.TAG_NAME, "button").send_keys(Keys.SPACE)
    assert heads["return"].get_attribute("aria-sort") == "ascending"
    # What has no number comes last either way.
    assert runs() == [first[1], first[0], "it"] and first[2] == "it"


def test_dark_and_light_follow_the_reader(browser, page):
    def looks() -> tuple[str, str]:
        script = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
        ticks = browser.run(script, f"{COMMON} .xtick text", "fill")
        return browser.run(script, "body", "backgroundColor"), ticks

    browser.show(page)
    browser.drawn(COMMON)
    light = looks()
    browser.ask("Emulation.setEmulatedMedia", features=[scheme_of("dark")])
    browser.wait(lambda: looks()[1] != light[1])
    dark = looks()
    assert light[0] == "rgb(255, 255, 255)" and dark[0] == "rgb(20, 23, 27)"


def test_a_phone_shows_all_without_scrolling_sideways(browser, page):
    browser.show(page, width=390, height=800)
    browser.drawn(COMMON)
    assert browser.run("return document.documentElement.scrollWidth") == 390
    widths = "return [...document.querySelectorAll('.figure')].map(x => x.offsetWidth)"
    assert max(browser.run(widths)) <= 390
    # A finger on a figure scrolls the page until zooming is asked for.
    mode = "return document.querySelector(arguments[0])._fullLayout.dragmode"
    assert browser.run(mode, f"{COMMON} .plot") is False
    browser.one(f"{COMMON} [data-name=zoom]").click()
    browser.wait(lambda: browser.run(mode, f"{COMMON} .plot") == "zoom")


def test_paper_is_light_and_has_the_settings(browser, page):
    browser.show(page, "dark")
    browser.drawn(COMMON)
    browser.run("dispatchEvent(new Event('beforeprint'))")
    ticks = "return getComputedStyle(document.querySelector('.xtick text')).fill"
    assert browser.run(ticks) == "rgb(92, 102, 112)"  # the quiet ink of the light page
    assert browser.run("return document.querySelectorAll('details.block:not([open])').length") == 0
    browser.run("dispatchEvent(new Event('afterprint'))")
    assert browser.run("return document.querySelectorAll('details.block[open]').length") == 0
    browser.wait(lambda: browser.run(ticks) != "rgb(92, 102, 112)")


def test_figures_and_films_have_words(browser, page):
    browser.show(page)
    labels = [x.get_attribute("aria-label") for x in browser.all(".plot")]
    assert labels and all("line" in x or "bar" in x for x in labels)
    assert all(x.get_attribute("alt") for x in browser.all("img"))
    assert len(browser.all("img")) == 1


def test_hostile_names_run_nothing(browser, tmp_path):
    runs = [str(pages.training(tmp_path / x, env=HOSTILE, rule=HOSTILE)) for x in "ab"]
    browser.show(write_report(runs, str(tmp_path / "report.html")).as_uri())
    browser.drawn(COMMON)  # an alert would be an error of the driver, a blocked script a complaint
    plot = browser.one(f"{COMMON} .nsewdrag")
    ActionChains(browser.driver).move_to_element(plot).perform()
    browser.wait(lambda: browser.all(f"{COMMON} .hoverlayer text"))
    assert browser.all(f"{COMMON} a, {COMMON} img") == []
    assert browser.one(f"{COMMON} .legend button").text.startswith("</script>")


def test_a_hundred_runs_open_at_once(browser, tmp_path):
    points = Detail.among(100).points  # with more records, the page would not be larger
    paths = [
        pages.training(tmp_path / f"run-{i}", f"env-{i % 5}", f"rule-{i // 5}", points, 5, i)
        for i in range(100)
    ]
    report = tmp_path / "report.html"
    # In a process of its own: types are not checked there, which takes long for so many numbers.
    code = (
        "import sys; from etude.report.write import write_report as w; w(sys.argv[2:], sys.argv[1])"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", code, report, *paths]
    subprocess.run(command, check=True, timeout=300, env=environment)
    assert 3_000_000 < report.stat().st_size <= PAGE_BYTES

    def seconds() -> float:
        browser.driver.get("about:blank")
        started = time.monotonic()
        browser.show(report.as_uri())
        browser.wait(lambda: browser.all(f"{COMMON}[data-drawn] .main-svg"))
        return time.monotonic() - started

    assert min(seconds() for _ in range(3)) < OPEN_SECONDS  # the machine may be busy
    assert len(browser.all(".figure[data-drawn]")) < 20  # of hundreds
    browser.one("td a").click()  # opens the part of a run
    browser.drawn("#run-1-2")


def test_a_live_page_goes_on_where_the_reader_is(browser, tmp_path):
    path = pages.training(tmp_path / "run")
    (path / "summary.json").unlink()
    address: list[str] = []
    serving = threading.Thread(
        target=serve.serve, args=([str(path)], 0, address.append), daemon=True
    )
    serving.start()
    browser.wait(lambda: address)
    browser.show(address[0])
    figure = "#run-1-1"
    browser.drawn(figure)
    browser.all(f"{figure} .legend button")[1].click()
    browser.wait(lambda: traces_in(browser, figure) == 3)  # the mean, its band, a seed
    browser.run(
        "Plotly.relayout(document.querySelector(arguments[0]), {'xaxis.range': [500, 900]})",
        f"{figure} .plot",
    )
    records = (path / "metrics.jsonl").read_text().splitlines()
    with open(path / "metrics.jsonl", "a") as file:
        file.write(records[-1].replace('"steps": 4000', '"steps": 4100') + "\n")
    # In one go: a page that lives may put another element there between finding and reading it.
    lead = "return document.querySelector('.lead').textContent"
    browser.wait(lambda: "4,100 of" in browser.run(lead))
    points = "return document.querySelector(arguments[0]).data.at(-1).x.at(-1)"
    browser.wait(lambda: browser.run(points, f"{figure} .plot") == 4100)
    assert axis_of(browser, figure, "xaxis")["range"] == [500, 900]
    assert traces_in(browser, figure) == 3
    assert "Live, as of" in browser.one("#live").text
