"""A viewer of the page: a browser window that is signed in, what it may be asked to do, and what its console has said."""

import json
import re
from pathlib import Path
from typing import Any, Self

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Error, Page, Route, expect

from tests.e2e.cluster import Cluster, until

PATIENCE_MS = 60_000
AXE = Path(__file__).parents[2] / "ui" / "node_modules" / "axe-core" / "axe.min.js"
PHONE = {"width": 390, "height": 844}
# Chromium breaks off requests when an interface of the machine appears, such as those of containers of other tests.
NETWORK_CHANGED = "ERR_NETWORK_CHANGED"
ITS_ERROR_PAGE = "chrome-error://"
DESK = {"width": 1440, "height": 900}
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
        self.errors: list[str] = []
        self.page: Page = context.new_page()
        self.page.on("console", lambda said: self.errors.append(said.text) if is_fault(said) else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))

    @classmethod
    def unknown(cls, browser: Browser, cluster: Cluster, **options: Any) -> Self:
        """A window without a token."""
        context = browser.new_context(ignore_https_errors=True, **{"viewport": DESK, **options})
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
        until(lambda: self._goes_to(f"{self.url}/ui{path}"), PATIENCE_MS / 1000, f"{path} is open")
        expect(self.page.locator("h1").first).to_be_visible()
        return self.page

    def _goes_to(self, url: str) -> bool:
        try:
            self.page.goto(url)
        except Error as error:
            if NETWORK_CHANGED in error.message or ITS_ERROR_PAGE in error.message:
                return False
            raise
        return True

    def faults(self) -> list[str]:
        """Faults that axe calls serious or critical."""
        # By the protocol of the browser's tools: the page's own policy forbids scripts from elsewhere.
        self.page.evaluate(f"() => {{ {AXE.read_text()} }}")
        found = self.page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{each['id']}: {node['html']} {node['failureSummary']}"
            for each in found["violations"]
            if each["impact"] in ("serious", "critical")
            for node in each["nodes"]
        ]

    def close(self) -> None:
        """Close the window. Fails if the console had an error."""
        self._context.close()
        assert self.errors == [], self.errors
