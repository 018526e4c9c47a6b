// The entry of the page: signs in by the link's code, if there is one, then shows the application.
import { render } from "preact";
import { App } from "./app";
import { signInByLink } from "./session";
import { applyTheme } from "./theme";

applyTheme();
const root = document.getElementById("app");
if (root) {
  const problem = await signInByLink().catch(() => "The server does not answer. Reload this page.");
  render(<App problem={problem ?? ""} />, root);
}
