"""Counts frames of the browser from the arrival of a change at the page to what shows it: a busy machine does not matter."""

from playwright.sync_api import Page

MOST_FRAMES = 2
# The page itself notes each change of a collection in the browser's timeline, from its arrival on (api/collection.ts).
_WATCH = """
() => {
  window.frames_seen = [];
  const tick = (at) => { window.frames_seen.push(at); requestAnimationFrame(tick); };
  requestAnimationFrame(tick);
  window.arrivals = [];
  new PerformanceObserver((list) => window.arrivals.push(...list.getEntries().map((each) => [each.startTime, each.detail])))
    .observe({type: "measure"});
  window.shown_at = {};
}
"""
_EXPECT = """
([text, scope]) => new MutationObserver(() => {
  const isShown = [...document.querySelectorAll(scope)].some((each) => each.textContent.includes(text));
  if (isShown) window.shown_at[text] ??= performance.now();
}).observe(document.body, {subtree: true, childList: true, characterData: true, attributes: true})
"""
_ARRIVALS = "([text, plural]) => window.arrivals.filter(([at, what]) => what === plural && at <= window.shown_at[text])"


def watch_frames(page: Page) -> None:
    """Begin to note frames and arrivals."""
    page.evaluate(_WATCH)


def expect_text(page: Page, text: str, scope: str = "main") -> None:
    """Begin to look for a text, which is not there yet, in elements of the selector `scope`."""
    assert text not in "".join(page.locator(scope).all_inner_texts())
    page.evaluate(_EXPECT, [text, scope])


def frames_until(page: Page, text: str, plural: str) -> int:
    """Wait for the text; return how many frames began between the last change of `plural` before it and its appearance."""
    # The timeline's entries are told some time later.
    page.wait_for_function(f"given => ({_ARRIVALS})(given).length > 0", arg=[text, plural])
    arrived = max(at for at, _ in page.evaluate(_ARRIVALS, [text, plural]))
    shown, frames = page.evaluate("text => [window.shown_at[text], window.frames_seen]", text)
    return len([at for at in frames if arrived < at < shown])
