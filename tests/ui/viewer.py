"""A viewer of the page: a browser window that is signed in, what it may be asked to do, and what its console has said."""

import json
import re
from pathlib import Path
from typing import Any, Literal, Self

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Error, Page, Route, ViewportSize, expect

from tests.e2e.cluster import Cluster, until

PATIENCE_MS = 60_000
AXE = Path(__file__).parents[2] / "ui" / "node_modules" / "axe-core" / "axe.min.js"
PHONE = ViewportSize(width=390, height=844)
# Chromium breaks off requests when an interface of the machine appears, such as those of containers of other tests.
NETWORK_CHANGED = "ERR_NETWORK_CHANGED"
# What a navigation ends with then; the browser itself loads the page again, which breaks off the next one.
BROKEN_OFF = (NETWORK_CHANGED, "chrome-error://", "interrupted by another navigation")
DESK = ViewportSize(width=1440, height=900)
# Of what may not scroll sideways: the parts that are wider than the room that they have.
_WIDER = """
() => [document.documentElement, ...document.querySelectorAll("main, .scroller")]
  .filter((each) => each.scrollWidth > each.clientWidth).map((each) => each.className || each.tagName)
"""
expect.set_options(timeout=PATIENCE_MS)


def is_fault(said: ConsoleMessage) -> bool:
    """Return whether the console reports a fault of the page: a change of the machine's network is none."""
    return said.type == "error" and NETWORK_CHANGED not in said.text


def hold_requests(page: Page, pattern: str | re.Pattern[str]) -> list[Route]:
    """Keep back requests of the page; returns the list to which each is added."""
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route(pattern, hold)
    return held


class Viewer:
    """A window of the browser. `page` is Playwright's."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self._context, self.url = context, url
        self._errors: list[str] = []
        self._expected: str | None = None
        self.page: Page = context.new_page()
        self.page.on(
            "console",
            lambda said: self._errors.append(f"{said.text} {said.location['url']}") if is_fault(said) else None,
        )
        self.page.on("pageerror", lambda error: self._errors.append(str(error)))

    @classmethod
    def unknown(cls, browser: Browser, cluster: Cluster, **options: Any) -> Self:
        """A window without a token."""
        # Without motion, colours change at once: what looks at them need not wait.
        options = {"viewport": DESK, "reduced_motion": "reduce", **options}
        context = browser.new_context(ignore_https_errors=True, **options)
        context.set_default_timeout(PATIENCE_MS)
        return cls(context, cluster.url)

    @classmethod
    def signed_in(cls, browser: Browser, cluster: Cluster, token: str = "", **options: Any) -> Self:
        """A window with a token; the administrator's unless another is given."""
        made = cls.unknown(browser, cluster, **options)
        key, value = json.dumps("jobplane.token"), json.dumps(token or cluster.token())
        # Once: whoever signs out stays signed out. The browser's own error pages have no storage.
        keep = f"sessionStorage.setItem({key}, {value}); window.name = 'visited'"
        made._context.add_init_script(f"if (location.protocol == 'https:' && !window.name) {{ {keep} }}")
        return made

    def open(self, path: str) -> Page:
        """Go to a view, such as /jobs, and wait until its heading is there."""
        self.follow(f"{self.url}/ui{path}")
        expect(self.page.locator("h1").first).to_be_visible()
        return self.page

    def follow(self, link: str) -> None:
        """Load a page, again if the machine's network has changed meanwhile."""
        until(lambda: self._goes_to(link), PATIENCE_MS / 1000, f"{link} is open")

    def _goes_to(self, url: str) -> bool:
        try:
            self.page.goto(url)
        except Error as error:
            if any(each in error.message for each in BROKEN_OFF):
                return False
            raise
        return True

    def show(self, scheme: Literal["light", "dark"] = "light", size: ViewportSize | None = None) -> None:
        """Change the browser's scheme and the window's size, without loading the page anew."""
        self.page.emulate_media(color_scheme=scheme)
        self.page.set_viewport_size(size or DESK)
        self.page.wait_for_function(
            "([scheme, width]) => document.documentElement.dataset.theme == scheme && innerWidth == width",
            arg=[scheme, (size or DESK)["width"]],
        )

    def assert_accessible(self, what: str = "") -> None:
        """No serious fault on a desk, in the dark, where only colours differ, and on a phone, where nothing scrolls sideways."""
        assert self.faults() == [], what
        self.show("dark")
        assert self.faults("color-contrast") == [], f"{what} in the dark"
        self.show("light", PHONE)
        assert self.faults() == [], f"{what} on a phone"
        assert self.page.evaluate(_WIDER) == [], f"{what} on a phone"
        self.show()

    def faults(self, *rules: str) -> list[str]:
        """Faults that axe calls serious or critical; of these rules, or else of all."""
        # By the protocol of the browser's tools: the page's own policy forbids scripts from elsewhere.
        if not self.page.evaluate("() => 'axe' in window"):
            self.page.evaluate(f"() => {{ {AXE.read_text()} }}")
        only = {"runOnly": rules} if rules else {}
        found = self.page.evaluate("options => axe.run(document, options)", {"resultTypes": ["violations"], **only})
        return [
            f"{each['id']}: {node['html']} {node['failureSummary']}"
            for each in found["violations"]
            if each["impact"] in ("serious", "critical")
            for node in each["nodes"]
        ]

    def expect_refusals(self, status: int) -> None:
        """Answers with this status are no fault, whenever they come: a page asks for several things at once."""
        self._expected = f"the server responded with a status of {status} "

    def close(self) -> None:
        """Close the window. Fails if the console had an error that was not expected."""
        self._context.close()
        faults = [each for each in self._errors if not self._expected or self._expected not in each]
        assert faults == [], faults
