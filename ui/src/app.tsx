// The frame around every page: navigation, the routes, and the sign-in form for those without a token.
import { Link, Route, Router, Switch, useLocation } from "wouter-preact";
import { Icon } from "./components/icon";
import { Shortcuts } from "./components/shortcuts";
import { ClusterPage } from "./pages/cluster";
import { CronJobPage } from "./pages/cronjob";
import { CronJobsPage } from "./pages/cronjobs";
import { EventsPage } from "./pages/events";
import { HistoryPage } from "./pages/history";
import { JobPage } from "./pages/job";
import { JobsPage } from "./pages/jobs";
import { LogsPage } from "./pages/logs";
import { NodePage } from "./pages/node";
import { NodesPage } from "./pages/nodes";
import { PodPage } from "./pages/pod";
import { PodsPage } from "./pages/pods";
import { QueuesPage } from "./pages/queues";
import { RecordPage } from "./pages/record";
import { SignInPage } from "./pages/signin";
import { signOut, token } from "./session";
import { nextTheme, theme } from "./theme";

const SECTIONS = [
  { path: "/", name: "Cluster", icon: "cluster" },
  { path: "/jobs", name: "Jobs", icon: "jobs" },
  { path: "/cronjobs", name: "CronJobs", icon: "cronjobs" },
  { path: "/pods", name: "Pods", icon: "pods" },
  { path: "/nodes", name: "Nodes", icon: "nodes" },
  { path: "/queues", name: "Queues", icon: "queues" },
  { path: "/events", name: "Events", icon: "events" },
  { path: "/history", name: "History", icon: "history" },
] as const;

export function App({ problem }: { problem: string }) {
  if (token.value === null) return <SignInPage problem={problem} />;
  return (
    <Router base="/ui">
      <a class="skip" href="#main">
        Skip to the content
      </a>
      <Navigation />
      <main id="main" tabIndex={-1}>
        <Pages />
      </main>
      <Shortcuts />
    </Router>
  );
}

function Navigation() {
  const [location] = useLocation();
  const isHere = (path: string): boolean => (path === "/" ? location === "/" : location.startsWith(path));
  return (
    <header class="navigation">
      <Link href="/" class="brand" aria-label="Jobplane: cluster">
        <Icon name="brand" />
        <span>Jobplane</span>
      </Link>
      <nav aria-label="Sections">
        {SECTIONS.map(({ path, name, icon }) => (
          <Link key={path} href={path} aria-label={name} class={isHere(path) ? "section here" : "section"} aria-current={isHere(path) ? "page" : undefined}>
            <Icon name={icon} />
            <span>{name}</span>
          </Link>
        ))}
      </nav>
      <div class="viewer">
        <button type="button" class="quiet" onClick={nextTheme} aria-label={`Theme: ${theme.value}. Change`} title={`Theme: ${theme.value}`}>
          <Icon name={theme.value === "dark" ? "moon" : theme.value === "light" ? "sun" : "half"} />
        </button>
        <button type="button" class="quiet" onClick={signOut} aria-label="Sign out" title="Sign out">
          <Icon name="out" />
        </button>
      </div>
    </header>
  );
}

function Pages() {
  return (
    <Switch>
      <Route path="/" component={ClusterPage} />
      <Route path="/jobs" component={JobsPage} />
      <Route path="/jobs/:namespace/:name">{(at) => <JobPage namespace={at.namespace} name={at.name} />}</Route>
      <Route path="/cronjobs" component={CronJobsPage} />
      <Route path="/cronjobs/:namespace/:name">{(at) => <CronJobPage namespace={at.namespace} name={at.name} />}</Route>
      <Route path="/pods" component={PodsPage} />
      <Route path="/pods/:namespace/:name">{(at) => <PodPage namespace={at.namespace} name={at.name} />}</Route>
      <Route path="/nodes" component={NodesPage} />
      <Route path="/nodes/:name">{(at) => <NodePage name={at.name} />}</Route>
      <Route path="/queues" component={QueuesPage} />
      <Route path="/events" component={EventsPage} />
      <Route path="/history" component={HistoryPage} />
      <Route path="/history/:namespace/:uid">{(at) => <RecordPage namespace={at.namespace} uid={at.uid} />}</Route>
      <Route path="/logs/:namespace/:kind/:name">
        {(at) => <LogsPage namespace={at.namespace} kind={at.kind === "job" ? "job" : "pod"} name={at.name} />}
      </Route>
      <Route>
        <div class="empty">
          <h1>There is no such page</h1>
          <p>
            Go to the <Link href="/">cluster</Link> or to the <Link href="/jobs">Jobs</Link>.
          </p>
        </div>
      </Route>
    </Switch>
  );
}
